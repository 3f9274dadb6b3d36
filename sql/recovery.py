"""What is operational, made anew after the views were projected from the log: claims of the door, and where readers go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


async def claim_at_door(pool: Pool, accepted: Sequence[tuple[UUID, str]]) -> None:
    """Internal ids of the producers' events, with their payloads' hashes, or ERASED."""
    with database_errors():
        await pool.execute(statement("claim_at_door"), [identity for identity, _ in accepted], [sha256 for _, sha256 in accepted])


async def passed_door(pool: Pool, events: Collection[UUID]) -> set[UUID]:
    """Those that the door would pass over, were they read once more."""
    with database_errors():
        rows = await pool.fetch("select event_id from handled where generation = '' and stage = 'receive' and reacted and event_id = any($1)", list(events))
    return {row["event_id"] for row in rows}


async def place_reader(pool: Pool, group: str, topic: str, generation: str, stage: str, outputs: Sequence[str], *, over: timedelta | None = None) -> None:
    """On the log in this database, whose readers' places are gone with everything else: before the first event that is owed a reaction. `outputs` are the topics
    in which a reaction would show; without any the reader goes on at the end. What is older than `over` is owed nothing."""
    with database_errors():
        async with pool.acquire() as connection, connection.transaction():
            if outputs:
                await connection.execute(statement("mark_reacted"), generation, stage, topic, list(outputs), over)
            await connection.execute(statement("place_reader"), group, topic, generation, stage, bool(outputs))
