"""Why a stage does not go on, as far as the tables know."""

from __future__ import annotations

from typing import Any

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def has_reader(pool: Pool, group: str, topic: str) -> bool:
    """On the Postgres log: whether a process holds the group's lease. Raises DatabaseUnavailable."""
    with translate_database_errors():
        row = await pool.fetchrow(load_query("stage_reader"), group, topic)
    return bool(row and row["leased"])


async def fetch_oldest_running_work(pool: Pool, stage: str, generation: str | None) -> dict[str, Any] | None:
    """`{document_id, part, attempts, topic, partition, offset, seconds}` of what a stage has begun and not ended, of one
    generation or of all; None when there is nothing. Raises DatabaseUnavailable."""
    with translate_database_errors():
        row = await pool.fetchrow(load_query("oldest_running_work"), stage, generation)
    return dict(row) if row else None


async def fetch_lock_holder(pool: Pool, seconds: float) -> dict[str, Any] | None:
    """Who keeps our own processes waiting for a lock for at least so long: `{pid, application, state, seconds, query}` of its transaction. Raises DatabaseUnavailable."""
    with translate_database_errors():
        row = await pool.fetchrow(load_query("lock_holder"), seconds)
    return dict(row) if row else None
