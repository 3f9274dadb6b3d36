"""Restore operational state after a rebuild from the log: ingress claims and reader cursors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def restore_inbox(pool: Pool, accepted_events: Sequence[tuple[UUID, str]]) -> None:
    """Restore ingress claims: internal event ids with their payload hashes, or ERASED_PAYLOAD."""
    with translate_database_errors():
        await pool.execute(
            load_query("restore_inbox"),
            [identity for identity, _ in accepted_events],
            [sha256 for _, sha256 in accepted_events],
        )


async def find_admitted_events(pool: Pool, events: Collection[UUID]) -> set[UUID]:
    """Return the subset of events that ingress would skip if they were redelivered."""
    with translate_database_errors():
        rows = await pool.fetch(
            load_query("admitted_events"),
            list(events),
        )
    return {row["event_id"] for row in rows}


async def reset_reader_cursor(
    pool: Pool,
    group: str,
    topic: str,
    generation: str,
    stage: str,
    outputs: Sequence[str],
    *,
    max_age: timedelta | None = None,
) -> None:
    """Move a group's cursor on the Postgres log before the first event whose reaction is pending.

    `outputs` are the topics in which a reaction would appear; without any the cursor moves to the
    end. Events older than `max_age` need no reaction.
    """
    with translate_database_errors():
        async with pool.acquire() as connection, connection.transaction():
            if outputs:
                await connection.execute(
                    load_query("mark_reactions_done"),
                    generation,
                    stage,
                    topic,
                    list(outputs),
                    max_age,
                )
            await connection.execute(
                load_query("reset_reader_cursor"), group, topic, generation, stage, bool(outputs)
            )
