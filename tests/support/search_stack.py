"""A migrated database with one live generation, opened for the read side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from schemas.generations import Generation, HnswConfig, LexicalConfig
from sql.database import Pool, close_pool, connect, open_pool
from sql.index.search import PgSearch
from tests.support.document_rows import insert_generation


@dataclass(frozen=True)
class SearchStack:
    connection: asyncpg.Connection
    pool: Pool
    search: PgSearch
    generation: Generation


@asynccontextmanager
async def open_search_stack(
    dsn: str,
    *,
    dimension: int = 4,
    pool_size: int = 4,
    lexical: LexicalConfig | None = None,
    hnsw: HnswConfig | None = None,
) -> AsyncIterator[SearchStack]:
    connection = await connect(dsn, name="rows")
    pool = await open_pool(dsn, size=pool_size, name="search")
    try:
        yield SearchStack(
            connection,
            pool,
            PgSearch(pool),
            await insert_generation(connection, dimension=dimension, lexical=lexical, hnsw=hnsw),
        )
    finally:
        await close_pool(pool)
        await connection.close()
