"""The table of which Debezium reports changes, and a history with every kind of change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

CREATE_TABLE = (
    "create table notes (id int primary key, title text, body text, price numeric(8,2),"
    " made timestamp, day date, facts jsonb);"
    # Stored beside its row, so that the database's log names the text only when it changes.
    "alter table notes alter column body set storage external"
)
COLUMN_ENCODINGS = {
    "price": {"type": "decimal", "scale": 2},
    "made": {"type": "timestamp_us"},
    "day": {"type": "date"},
    "facts": {"type": "json"},
}
TOASTED_TEXT = " ".join(f"sentence {number} about herons in the reeds." for number in range(70))
SNAPSHOT = (
    "insert into notes select g, 'note ' || g, 'Heron ' || g || ' stands.', g / 4.0,"
    " '2026-03-01 12:00', '2026-03-02', '{\"n\": 1}' from generate_series(1, 3) g"
)
CHANGES = (
    f"insert into notes (id, title, body) values (4, 'long', '{TOASTED_TEXT}')",
    "update notes set body = 'Heron 1 flies.' where id = 1",
    "update notes set title = 'longer' where id = 4",
    "delete from notes where id = 2",
    "update notes set id = 30 where id = 3",
)
DOCUMENTS_BEFORE_TRUNCATE = {
    "1": ("note 1", "Heron 1 flies."),
    "30": ("note 3", "Heron 3 stands."),
    "4": ("longer", TOASTED_TEXT),
}
METADATA_OF_1 = {
    "price": "0.25",
    "made": "2026-03-01T12:00:00",
    "day": "2026-03-02",
    "facts": {"n": 1},
}
TRUNCATE = (
    "begin; truncate notes; insert into notes (id, body) values (7, 'Only this one.'); commit"
)
DOCUMENTS_AFTER_TRUNCATE = {"7": (None, "Only this one.")}


@asynccontextmanager
async def open_notes_table(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """Create the table, and drop the replication slots of its database at the end."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(CREATE_TABLE)
    yield connection
    await connection.execute(
        "select pg_terminate_backend(active_pid) from pg_replication_slots "
        "where database = current_database() and active_pid is not null;"
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
        "where database = current_database()"
    )
    await connection.close()
