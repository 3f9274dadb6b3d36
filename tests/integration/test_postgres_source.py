"""Ingest a foreign Postgres table through its replication slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from schemas.ports.sources import LogicalMessage, PeekedChanges
from services.sources import supervisor
from sql.database import load_query
from sql.log.replication_slot import PgChangeReader
from tests.support.eventually import eventually
from tests.support.source_environment import SourceEnvironment, run_source_environment

LONG_TEXT = " ".join(f"sentence {number} about herons in the reeds." for number in range(2500))
"""Longer than a row: an update that leaves it alone does not write it again."""


@pytest.fixture
async def shop(empty_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_database)
    await connection.execute(
        "create table notes (id int primary key, title text, body text, price numeric(8,2), made "
        "timestamptz, facts jsonb, active bool);"
        "alter table notes alter column body set storage external"
    )
    yield connection
    for slot in await connection.fetch(
        "select slot_name from pg_replication_slots where database = current_database()"
    ):
        await connection.execute(f"select pg_drop_replication_slot('{slot['slot_name']}')")
    await connection.close()


def make_takes(**mapping: Any) -> dict[str, Any]:
    return {
        "kind": "postgres",
        "table": "notes",
        "mapping": {"body": ["body"], "title": "title"} | mapping,
    }


@pytest.fixture(autouse=True)
def configured_dsns(monkeypatch: pytest.MonkeyPatch, empty_database: str) -> None:
    for name in ("CRM", "AGAIN", "THIRD"):
        monkeypatch.setenv(f"ANABRANCH_SOURCES__{name}", empty_database)


@pytest.fixture(autouse=True)
def short_retry_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RETRY_S", 0.3)


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[SourceEnvironment]:
    async with run_source_environment(tmp_path, database) as found:
        yield found


async def follow_herons(shop: asyncpg.Connection, world: SourceEnvironment, count: int) -> None:
    """Add the table as source `crm` with as many rows, and wait for their documents."""
    rows = [(number, "", f"Heron {number}.") for number in range(1, count + 1)]
    await shop.executemany("insert into notes (id, title, body) values ($1, $2, $3)", rows)
    await world.add_source("crm", make_takes())
    await world.wait_for_texts("crm", {str(number): body for number, _, body in rows})


async def count_slots(shop: asyncpg.Connection) -> int:
    return int(
        await shop.fetchval(
            "select count(*) from pg_replication_slots where database = current_database()"
        )
    )


async def execute_between_reads(shop: asyncpg.Connection, accident: str) -> None:
    async def try_execute() -> bool:
        try:
            await shop.execute(accident)
        except asyncpg.ObjectInUseError:
            return False
        return True

    await eventually(try_execute, what=accident)


async def test_table_is_snapshotted_then_streamed(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await shop.execute(
        "insert into notes select g, 'note ' || g, 'Heron ' || g || ' stands.' "
        "from generate_series(1, 40) g"
    )
    await world.add_source("crm", make_takes(metadata=["price", "made", "facts", "active"]))
    expected = {str(key): f"Heron {key} stands." for key in range(1, 41)}
    await world.wait_for_texts("crm", expected)
    await shop.execute(
        "insert into notes values (41, 'new', 'Heron 41 comes.', 12.50, '2026-03-01 12:00+00', "
        "'{\"a\": [1]}', true)"
    )
    await shop.execute(
        "update notes set body = 'Heron 1 flies.' where id = 1; delete from notes "
        "where id = 2; update notes set id = 300 where id = 3"
    )
    expected |= {"1": "Heron 1 flies.", "300": expected.pop("3"), "41": "Heron 41 comes."}
    del expected["2"]
    await world.wait_for_texts("crm", expected)
    metadata = await world.worker.storage.pool.fetchval(
        "select metadata from documents where external_id = '41'"
    )
    assert metadata == {
        "price": "12.50",
        "made": "2026-03-01T12:00:00Z",
        "facts": {"a": [1]},
        "active": True,
    }
    await shop.execute(
        "begin; truncate notes; insert into notes values (5, 'five', 'Only this.'); commit"
    )
    await world.wait_for_texts("crm", {"5": "Only this."})
    assert (await world.fetch_source("crm"))["state"] == "streaming"


async def test_large_transaction_is_read_in_batches(
    shop: asyncpg.Connection, empty_database: str
) -> None:
    """Bound memory, and keep no transaction open in the source's database."""
    reader = PgChangeReader(empty_database, "public", "notes", "anabranch_crm")
    async with reader.open_snapshot() as snapshot:
        assert [rows async for rows in snapshot.rows] == []
    await shop.execute(
        "insert into notes (id, body) select g, 'Heron ' || g from generate_series(1, 5000) g"
    )
    await shop.execute("insert into notes (id, body) values (5001, 'The next.')")
    async with reader.peek(100) as peeked:
        sizes = [len(batch) async for batch in peeked.batches]
        assert sum(sizes) > 5000 and max(sizes) <= 500
        assert (
            await shop.fetchval(
                "select count(*) from pg_stat_activity "
                "where application_name = 'anabranch source' and xact_start is not null"
            )
            == 0
        )
    async with reader.peek(100) as peeked:
        last = [message async for batch in peeked.batches for message in batch][-1].sequence
    await reader.advance(last)
    async with reader.peek(100) as peeked:
        assert [
            b"The next." in message.payload async for batch in peeked.batches for message in batch
        ].count(True) == 1
    await reader.close()


async def test_unchanged_toast_value_is_kept(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await shop.execute("insert into notes values (1, 'first', $$" + LONG_TEXT + "$$)")
    await world.add_source("crm", make_takes())
    await world.wait_for_texts("crm", {"1": LONG_TEXT})
    await shop.execute("update notes set title = 'second' where id = 1")
    await shop.execute("update notes set id = 7 where id = 1")
    await world.wait_for_texts("crm", {"7": LONG_TEXT})
    assert (
        await world.worker.storage.pool.fetchval(
            "select title from documents where external_id = '7'"
        )
        == "second"
    )


async def test_changes_during_snapshot_converge_to_table(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await shop.execute(
        "insert into notes select g, '', 'Heron ' || g from generate_series(1, 60) g"
    )

    async def change() -> None:
        other = await asyncpg.connect(empty_database)
        for key in range(1, 61, 3):
            await other.execute(
                f"begin; update notes set body = 'Egret {key}' where id = {key}; delete "
                f"from notes where id = {key + 1}; commit"
            )
        await other.close()

    changing = asyncio.create_task(change())
    await world.add_source("crm", make_takes())
    await changing
    rows = await shop.fetch("select id, body from notes")
    await world.wait_for_texts("crm", {str(row["id"]): row["body"] for row in rows})


@pytest.mark.parametrize("is_slot_lost", [False, True])
async def test_restarted_reader_resumes_or_makes_a_lost_slot_again(
    shop: asyncpg.Connection,
    empty_database: str,
    database: str,
    tmp_path: Path,
    is_slot_lost: bool,
) -> None:
    async with run_source_environment(tmp_path, database) as world:
        await follow_herons(shop, world, 2)
    if is_slot_lost:
        await shop.execute("select pg_drop_replication_slot('anabranch_crm')")
    await shop.execute(
        "delete from notes where id = 1; insert into notes values (3, '', 'Heron 3.')"
    )
    async with run_source_environment(tmp_path, database) as world:
        await world.wait_for_texts("crm", {"2": "Heron 2.", "3": "Heron 3."})


async def test_lost_reader_state_is_rebuilt_by_snapshot(
    shop: asyncpg.Connection, empty_database: str, database: str, tmp_path: Path
) -> None:
    async with run_source_environment(tmp_path, database) as world:
        await follow_herons(shop, world, 2)
        pool = world.worker.storage.pool
    mine = await asyncpg.connect(database)
    await mine.execute(
        "set search_path = anabranch; truncate source_changes, source_rows, source_tables, "
        "source_notes, source_states"
    )
    await mine.close()
    assert pool is not None
    await shop.execute("delete from notes where id = 1")
    async with run_source_environment(tmp_path, database) as world:
        await world.wait_for_texts("crm", {"2": "Heron 2."})


ADVANCE_POSITION_QUERY = (
    "update source_notes set value = value || '{\"sequence\": 9000000000000}' "
    "where key = 'position'"
)
"""As if the server had been there, and then been put back together with its slot."""


async def test_restored_server_with_slot_is_detected_and_recovered_by_reset(
    shop: asyncpg.Connection, empty_database: str, tmp_path: Path, database: str
) -> None:
    async with run_source_environment(tmp_path, database) as world:
        await follow_herons(shop, world, 2)
    ours = await asyncpg.connect(database)
    await ours.execute(f"set search_path = anabranch; {ADVANCE_POSITION_QUERY}")
    await ours.close()
    await shop.execute(
        "update notes set body = 'Heron 2 of another past.' where id = 2; "
        "delete from notes where id = 1"
    )
    async with run_source_environment(tmp_path, database) as world:
        await wait_for_status_code(world, "SOURCE_WENT_BACK")
        assert (await world.fetch_source("crm"))["status"]["remedy"] == "anabranch source reset crm"
        response = await world.http.post("/v1/sources/reset", params={"name": "crm"})
        assert response.json()["epoch"] == 2
        await world.wait_for_texts("crm", {"2": "Heron 2 of another past."})
        await shop.execute("insert into notes values (4, '', 'Heron 4.')")
        await world.wait_for_texts("crm", {"2": "Heron 2 of another past.", "4": "Heron 4."})


async def test_server_restored_while_reading_is_detected(
    shop: asyncpg.Connection,
    empty_database: str,
    world: SourceEnvironment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def from_before(reader: PgChangeReader, limit: int) -> AsyncIterator[PeekedChanges]:
        yield PeekedChanges(confirmed_sequence=1, end_sequence=1, batches=read_no_messages())

    await follow_herons(shop, world, 1)
    monkeypatch.setattr(PgChangeReader, "peek", from_before)
    await wait_for_status_code(world, "SOURCE_WENT_BACK")
    assert (
        await world.worker.storage.pool.fetchval(
            "select (value ->> 'sequence')::numeric from source_notes where key = 'position'"
        )
        > 1
    )


async def read_no_messages() -> AsyncIterator[Sequence[LogicalMessage]]:
    return
    yield


async def test_removed_source_drops_slot_and_optionally_documents(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await follow_herons(shop, world, 1)
    assert await count_slots(shop) == 1
    await world.http.delete("/v1/sources/crm", params={"withdraw": True})
    await world.wait_for_texts("crm", {})
    await eventually(lambda: count_slots(shop), lambda slots: slots == 0)
    assert await shop.fetchval("select count(*) from pg_publication") == 0

    async def list_sources() -> list[dict[str, Any]]:
        return list((await world.http.get("/v1/sources")).json()["items"])

    await eventually(list_sources, lambda sources: not sources)
    await world.add_source("crm", make_takes())
    await world.wait_for_texts("crm", {"1": "Heron 1."})


async def test_removal_withdraws_what_was_sent_just_before(
    shop: asyncpg.Connection, world: SourceEnvironment
) -> None:
    await follow_herons(shop, world, 1)
    pool = world.worker.storage.pool

    async def count_received() -> int:
        return int(await pool.fetchval("select count(*) from events where topic = 'raw'"))

    received = await count_received()
    async with pool.acquire() as connection, connection.transaction():
        # Nothing about the document is projected meanwhile.
        await connection.execute("select from documents for update")
        await shop.execute("update notes set body = 'Heron 1 flies.'")
        await shop.execute("insert into notes values (2, '', 'Heron 2.')")
        await eventually(count_received, lambda count: count >= received + 2)
        await world.http.delete("/v1/sources/crm", params={"withdraw": True})
        # Time for a removal that does not wait.
        await asyncio.sleep(2)
        assert await count_received() == received + 2
    await world.wait_for_texts("crm", {})


async def test_source_is_listed_immediately_and_can_be_recreated(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await shop.execute("insert into notes values (1, 'one', 'Heron 1.'), (2, 'two', 'Heron 2.')")
    await world.add_source("crm", make_takes())
    assert (await world.http.get("/v1/sources/crm")).status_code == 200
    await world.wait_for_texts("crm", {"1": "Heron 1.", "2": "Heron 2."})
    assert (
        await world.http.delete("/v1/sources/crm", params={"withdraw": True})
    ).status_code == 202
    await world.add_source("crm", make_takes(id=["title"]))
    await world.wait_for_texts("crm", {"one": "Heron 1.", "two": "Heron 2."})


async def wait_for_status_code(world: SourceEnvironment, code: str) -> None:
    await eventually(
        lambda: world.fetch_source("crm"), lambda source: source["status"].get("code") == code
    )


async def test_renamed_column_stops_reader_without_emptying_documents(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await follow_herons(shop, world, 2)
    await shop.execute(
        "alter table notes rename body to text; update notes set text = 'Egret 1.' "
        "where id = 1; delete from notes where id = 2"
    )
    await wait_for_status_code(world, "NO_SUCH_COLUMN")
    await world.wait_for_texts("crm", {"1": "Heron 1.", "2": "Heron 2."})
    await shop.execute(
        "alter table notes rename text to body; insert into notes values (3, '', 'Heron 3.')"
    )
    await world.http.delete("/v1/sources/crm")
    await world.add_source("again", make_takes())
    await world.wait_for_texts("again", {"1": "Egret 1.", "3": "Heron 3."})


async def test_added_dropped_and_retyped_columns_are_followed(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await shop.execute(
        "alter table notes add column rank int; insert into notes (id, body, rank) "
        "values (1, 'Heron 1.', 1)"
    )
    await world.add_source("crm", make_takes(metadata=["rank"]))
    await world.wait_for_texts("crm", {"1": "Heron 1."})
    await shop.execute(
        "alter table notes add column more text, drop column price, alter column rank type text; "
        "alter table notes rename made to created"
    )
    await shop.execute(
        "insert into notes (id, body, rank, more) "
        "values (2, 'Heron 2.', 'high', 'more'); update notes set body = 'Egret 1.', rank = 'low' "
        "where id = 1"
    )
    await world.wait_for_texts("crm", {"1": "Egret 1.", "2": "Heron 2."})
    rows = await world.worker.storage.pool.fetch(
        "select external_id, metadata from documents where withdrawn is null"
    )
    assert {row["external_id"]: row["metadata"] for row in rows} == {
        "1": {"rank": "low"},
        "2": {"rank": "high"},
    }


ACCIDENTS = (
    "select pg_drop_replication_slot('anabranch_crm')",
    "drop publication anabranch_crm",
    "alter publication anabranch_crm drop table notes",
    "drop table notes; create table notes (id int primary key, title text, body text); "
    "insert into notes values (1, '', 'Heron 1.'), (9, '', 'Heron 9.')",
)


async def test_dropped_slot_publication_or_table_is_recovered(
    shop: asyncpg.Connection, world: SourceEnvironment
) -> None:
    await follow_herons(shop, world, 2)
    for number, accident in enumerate(ACCIDENTS):
        await execute_between_reads(shop, accident)
        # Before and after the recovery.
        await shop.execute(
            f"delete from notes where id = {2 + number}; "
            f"insert into notes values ({3 + number}, '', 'Heron {3 + number}.')"
        )
        rows = await shop.fetch("select id, body from notes")
        expected = {str(row["id"]): row["body"] for row in rows}
        await world.wait_for_texts("crm", expected)
        await shop.execute(f"update notes set body = 'Egret {number}.' where id = 1")
        await world.wait_for_texts("crm", expected | {"1": f"Egret {number}."})


async def test_rows_missed_by_recreated_slot_are_reread(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    """The slot was recreated, or another installation reads it too."""
    await follow_herons(shop, world, 2)
    await execute_between_reads(shop, "select pg_drop_replication_slot('anabranch_crm')")
    await shop.execute(
        "delete from notes where id = 2; insert into notes values (3, '', 'Heron 3.')"
    )
    await shop.execute("select pg_create_logical_replication_slot('anabranch_crm', 'pgoutput')")
    await shop.execute("insert into notes values (4, '', 'Heron 4.')")
    await world.wait_for_texts("crm", {"1": "Heron 1.", "3": "Heron 3.", "4": "Heron 4."})


async def test_partitioned_table_is_followed_by_root_name(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await shop.execute(
        "create table parted (id int primary key, body text) partition by range (id);"
        "create table low partition of parted for values "
        "from (0) to (10); create table high partition of parted for values from (10) to (20);"
        "insert into parted values (1, 'Heron 1.'), (11, 'Heron 11.')"
    )
    await world.add_source(
        "crm", {"kind": "postgres", "table": "parted", "mapping": {"body": ["body"]}}
    )
    await world.wait_for_texts("crm", {"1": "Heron 1.", "11": "Heron 11."})
    await shop.execute(
        "insert into parted values (2, 'Heron 2.'); update parted set id = 12 "
        "where id = 1; delete from parted where id = 11"
    )
    await world.wait_for_texts("crm", {"2": "Heron 2.", "12": "Heron 1."})
    await shop.execute("truncate parted; insert into parted values (5, 'Only this.')")
    await world.wait_for_texts("crm", {"5": "Only this."})


async def test_unsupported_table_fails_with_reason(
    shop: asyncpg.Connection, world: SourceEnvironment
) -> None:
    await shop.execute("create table keyless (body text)")
    for name, table, column, code in (
        ("crm", "keyless", "body", "NO_PRIMARY_KEY"),
        ("again", "notes", "nowhere", "NO_SUCH_COLUMN"),
        ("third", "absent", "body", "NO_SUCH_TABLE"),
    ):
        takes = {"kind": "postgres", "table": table, "mapping": {"body": [column]}}
        await world.add_source(name, takes)
        source = await eventually(
            lambda name=name: world.fetch_source(name),
            lambda source: source.get("state") == "failed",
        )
        assert source["status"]["code"] == code
    assert await count_slots(shop) == 0


async def test_erasure_removes_row_text_under_older_keys(
    shop: asyncpg.Connection, empty_database: str, world: SourceEnvironment
) -> None:
    await shop.execute("insert into notes values (1, '', 'canary-4711'), (2, '', 'Heron 2.')")
    await world.add_source("crm", make_takes())
    await world.wait_for_texts("crm", {"1": "canary-4711", "2": "Heron 2."})
    await shop.execute("update notes set id = 8 where id = 1")
    await shop.execute("insert into notes values (1, '', 'Another 1.')")
    await world.wait_for_texts("crm", {"8": "canary-4711", "2": "Heron 2.", "1": "Another 1."})
    pool = world.worker.storage.pool
    document = await pool.fetchval("select id from documents where external_id = '8'")
    await pool.execute(load_query("erase_source_changes"), "default", [document])
    remaining = {
        row["key"]: row["columns"]["body"]
        for row in await pool.fetch("select key, columns from source_changes where not is_deleted")
    }
    assert remaining == {"1": "Another 1.", "2": "Heron 2."}
