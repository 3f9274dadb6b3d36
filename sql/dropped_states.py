"""Track token state blobs that dropped generations leave in the blob store."""

from __future__ import annotations

from collections.abc import Sequence

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def record_dropped_states(pool: Pool, generation: str) -> None:
    """Record the blobs of a generation. Call it before its rows, the only reference to them, are
    deleted.
    """
    with translate_database_errors():
        await pool.execute(load_query("record_dropped_states"), generation)


async def fetch_dropped_states(pool: Pool, limit: int) -> dict[str, bool]:
    """Return blob key → whether another generation still references the blob."""
    with translate_database_errors():
        return {
            row["blob_key"]: row["used"]
            for row in await pool.fetch(load_query("dropped_state_blobs"), limit)
        }


async def delete_dropped_states(pool: Pool, keys: Sequence[str]) -> None:
    with translate_database_errors():
        await pool.execute(load_query("delete_dropped_states"), list(keys))
