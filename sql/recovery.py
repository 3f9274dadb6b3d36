"""What is operational, made anew after the views were projected from the log: claims of the door, and where readers go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def restore_inbox(pool: Pool, accepted_events: Sequence[tuple[UUID, str]]) -> None:
    """Internal ids of the producers' events, with their payloads' hashes, or ERASED."""
    with translate_database_errors():
        await pool.execute(load_query("restore_inbox"), [identity for identity, _ in accepted_events], [sha256 for _, sha256 in accepted_events])


async def find_admitted_events(pool: Pool, events: Collection[UUID]) -> set[UUID]:
    """Those that the door would pass over, were they read once more."""
    with translate_database_errors():
        rows = await pool.fetch("select event_id from handled where generation = '' and stage = 'receive' and reacted and event_id = any($1)", list(events))
    return {row["event_id"] for row in rows}


async def reset_reader_cursor(
    pool: Pool, group: str, topic: str, generation: str, stage: str, outputs: Sequence[str], *, max_age: timedelta | None = None
) -> None:
    """On the log in this database, whose readers' places are gone with everything else: before the first event that is owed a reaction. `outputs` are the topics
    in which a reaction would show; without any the reader goes on at the end. What is older than `over` is owed nothing."""
    with translate_database_errors():
        async with pool.acquire() as connection, connection.transaction():
            if outputs:
                await connection.execute(load_query("mark_reactions_done"), generation, stage, topic, list(outputs), max_age)
            await connection.execute(load_query("reset_reader_cursor"), group, topic, generation, stage, bool(outputs))
