"""Diagnose a stalled stage from the tables."""

from __future__ import annotations

from typing import Any

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def fetch_oldest_running_work(
    pool: Pool, stage: str, generation: str | None
) -> dict[str, Any] | None:
    """Return the stage's oldest unfinished work, of one generation or of all; None if there is
    none.

    Keys: `document_id, part, attempts, topic, partition, offset, seconds`. Raises
    DatabaseUnavailable.
    """
    with translate_database_errors():
        row = await pool.fetchrow(load_query("oldest_running_work"), stage, generation)
    return dict(row) if row else None


async def fetch_lock_holder(pool: Pool, seconds: float) -> dict[str, Any] | None:
    """Return the transaction for whose lock our connections have waited at least `seconds`.

    Keys: `pid, application, state, seconds, query`. Raises DatabaseUnavailable.
    """
    with translate_database_errors():
        row = await pool.fetchrow(load_query("lock_holder"), seconds)
    return dict(row) if row else None
