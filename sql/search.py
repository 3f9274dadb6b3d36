"""The read side: every channel of one question sees one state of one generation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigurationError, NotFound
from schemas.generations import Generation
from schemas.ports.search import ChunkView, Hit, LexicalHits, ParentView, Seed
from schemas.principals import Readers
from schemas.questions import Filters
from sql import graph, lexical, semantic, views
from sql.errors import database_errors
from sql.pool import Pool
from sql.readers import BEGIN, give_back
from sql.readers import Readers as Connections
from sql.scope import resolve
from sql.statements import statement


class PgSearch:
    """Snapshots over Postgres. Each holds one connection and reads with up to `connections` more; so many questions run at once as the pool has room for,
    the others wait their turn. Use a pool of its own. Raises ConfigurationError for a pool of one connection."""

    def __init__(self, pool: Pool, *, connections: int = 3) -> None:
        self._pool = pool
        self._connections = min(connections, pool.get_max_size() - 1)
        if self._connections < 1:
            raise ConfigurationError(
                "Search needs a pool of at least two connections.", remedy=f"Give the pool {connections + 1} for each question asked at once."
            )
        self._turns = asyncio.Semaphore(pool.get_max_size() // (self._connections + 1))

    @asynccontextmanager
    async def snapshot(self, generation: str | None = None, names: Readers = None) -> AsyncIterator[PgSnapshot]:
        """Of the live generation, or the named one, with the documents that `names` may read. Raises NotFound, DatabaseUnavailable."""
        async with self._turns, self._holding(generation) as (name, state, live):
            readers = Connections(self._pool, name, self._connections)
            try:
                yield PgSnapshot(live, state, readers, names)
            finally:
                await readers.close()

    @asynccontextmanager
    async def _holding(self, generation: str | None) -> AsyncIterator[tuple[str, str, Generation]]:
        """The exported snapshot's name, for as long as its transaction is open, its state, and the generation."""
        with database_errors():
            connection = await self._pool.acquire()
        try:
            with database_errors():
                await connection.execute(BEGIN)
                row = await connection.fetchrow(statement("snapshot"), generation)
            if row is None:
                raise _unknown(generation)
            yield row["snapshot"], row["standing"], Generation(**{name: row[name] for name in ("name", "config", "how", "topics", "state")})
        finally:
            await asyncio.shield(give_back(self._pool, connection))


class PgSnapshot:
    """See `schemas.ports.search.Snapshot`."""

    def __init__(self, generation: Generation, state: str, connections: Connections, names: Readers) -> None:
        self.generation, self.state = generation, state
        self._readers, self._names = connections, names

    async def lexical(self, tenant: str, text: str, *, language: str | None, filters: Filters, k: int, budget: int) -> LexicalHits:
        async with self._readers.one() as connection:
            scope = await resolve(connection, self.generation.name, tenant, filters, self._names)
            return await lexical.search(connection, scope, text, language, k, budget)

    async def semantic(self, tenant: str, vector: NDArray[np.float32], *, filters: Filters, k: int) -> Sequence[Hit]:
        async with self._readers.one() as connection:
            scope = await resolve(connection, self.generation.name, tenant, filters, self._names)
            return await semantic.search(connection, scope, vector, k)

    async def link(self, tenant: str, keys: Sequence[str]) -> Sequence[Seed]:
        async with self._readers.one() as connection:
            return await graph.link(connection, self.generation.name, tenant, keys, self._names)

    async def graph(self, tenant: str, seeds: Sequence[Seed], *, hops: int, fan_out: int, decay: float, filters: Filters, k: int) -> Sequence[Hit]:
        async with self._readers.one() as connection:
            scope = await resolve(connection, self.generation.name, tenant, filters, self._names)
            return await graph.expand(connection, scope, seeds, hops=hops, fan_out=fan_out, decay=decay, k=k)

    async def chunks(self, ids: Sequence[UUID]) -> Mapping[UUID, ChunkView]:
        async with self._readers.one() as connection:
            return await views.chunks(connection, self.generation.name, ids, self._names)

    async def parents(self, ids: Sequence[UUID]) -> Mapping[UUID, ParentView]:
        async with self._readers.one() as connection:
            return await views.parents(connection, self.generation.name, ids, self._names)

    async def children(self, parents: Sequence[UUID]) -> Sequence[ChunkView]:
        async with self._readers.one() as connection:
            return await views.children(connection, self.generation.name, parents, self._names)

    async def missing_collections(self, tenant: str, names: Sequence[str]) -> list[str]:
        async with self._readers.one() as connection:
            return [row["name"] for row in await connection.fetch(statement("missing_collections"), tenant, list(names), self._names)]

    async def corpus_size(self, tenant: str) -> int:
        async with self._readers.one() as connection:
            return int(await connection.fetchval(statement("corpus_size"), self.generation.name, tenant))


def _unknown(generation: str | None) -> NotFound:
    if generation is None:
        return NotFound("There is no live generation yet.", code="NO_GENERATION", remedy="Start a worker (`anabranch up`): it creates the first one.")
    return NotFound(f"There is no generation {generation}.", code="NO_SUCH_GENERATION", remedy="GET /v1/generations lists them.")
