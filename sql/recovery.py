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


async def reset_reader_cursor(
    pool: Pool,
    group: str,
    topic: str,
    generation: str,
    stage: str,
    outputs: Sequence[str],
    *,
    max_age: timedelta | None = None,
    missing_keys: Collection[UUID] = (),
) -> None:
    """Move a group's cursor on the Postgres log before the first event whose reaction is pending.

    `outputs` are the topics in which a reaction would appear; without any the cursor moves to the
    end. Events older than `max_age` need no reaction. Events under `missing_keys` are left pending:
    ingress emits them again with the same id and new keys.
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
                    [str(key) for key in missing_keys],
                )
            await connection.execute(
                load_query("reset_reader_cursor"), group, topic, generation, stage, bool(outputs)
            )
