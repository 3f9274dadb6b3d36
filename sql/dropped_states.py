"""Blobs of token states that dropped generations leave behind."""

from __future__ import annotations

from collections.abc import Sequence

from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

NOTE = "insert into dropped_states select distinct blob_key, document_id from chunk_states where generation = $1 on conflict do nothing"


async def note_states(pool: Pool, generation: str) -> None:
    """Before its rows go, which alone tell of them."""
    with database_errors():
        await pool.execute(NOTE, generation)


async def dropped_states(pool: Pool, limit: int) -> dict[str, bool]:
    """Key → whether a generation that is not dropped refers to it all the same."""
    with database_errors():
        return {row["blob_key"]: row["used"] for row in await pool.fetch(statement("dropped_states"), limit)}


async def forget_states(pool: Pool, keys: Sequence[str]) -> None:
    with database_errors():
        await pool.execute("delete from dropped_states where blob_key = any($1)", list(keys))
