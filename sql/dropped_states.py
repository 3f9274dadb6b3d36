"""Track token state blobs that dropped generations leave in the blob store."""

from __future__ import annotations

from collections.abc import Sequence

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query

INSERT_DROPPED_STATES = "insert into dropped_states select distinct blob_key, document_id from chunk_states where generation = $1 on conflict do nothing"


async def record_dropped_states(pool: Pool, generation: str) -> None:
    """Record the blobs of a generation. Call it before its rows, the only reference to them, are
    deleted.
    """
    with translate_database_errors():
        await pool.execute(INSERT_DROPPED_STATES, generation)


async def fetch_dropped_states(pool: Pool, limit: int) -> dict[str, bool]:
    """Return blob key → whether another generation still references the blob."""
    with translate_database_errors():
        return {
            row["blob_key"]: row["used"]
            for row in await pool.fetch(load_query("dropped_state_blobs"), limit)
        }


async def delete_dropped_states(pool: Pool, keys: Sequence[str]) -> None:
    with translate_database_errors():
        await pool.execute("delete from dropped_states where blob_key = any($1)", list(keys))
