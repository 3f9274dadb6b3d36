"""Search snapshots: every retriever of one query reads one state of one generation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from uuid import UUID

import numpy as np
from asyncpg.pool import PoolConnectionProxy
from numpy.typing import NDArray

from schemas.channels import DEFAULT_EF_SEARCH, DEFAULT_MAX_MENTIONS
from schemas.errors import ConfigurationError, DatabaseUnavailable
from schemas.facts import Fact
from schemas.generations import Generation
from schemas.graph_facts import GraphEvidence
from schemas.ports.search import (
    ChildStates,
    ChunkView,
    EntityAlias,
    EntityGraph,
    EntitySeed,
    Hit,
    LexicalHits,
    NamedDocument,
    ParentView,
    RankingFacts,
)
from schemas.principals import ReaderScope
from schemas.questions import Filters
from sql.catalog import facts
from sql.errors import translate_database_errors
from sql.index import chunk_views, graph, lexical, semantic
from sql.index.generations import no_live_generation_error, unknown_generation_error
from sql.index.search_scope import resolve_scope
from sql.pool import Pool
from sql.query_loader import load_query

BEGIN_READ_ONLY = (
    "begin isolation level repeatable read, read only; set local statement_timeout = '30s'"
)
"""The statement timeout bounds queries whose client no longer waits."""


class PgSearch:
    """Implements `schemas.ports.search.SearchIndex`.

    A snapshot uses one connection and reads with up to `connections` more; further queries wait
    until the pool has room. Use a separate pool. Raises ConfigurationError for a pool of one
    connection.
    """

    def __init__(self, pool: Pool, *, connections: int = 3) -> None:
        self._pool = pool
        self._connections = min(connections, pool.get_max_size() - 1)
        if self._connections < 1:
            raise ConfigurationError(
                "Search needs a pool of at least two connections.",
                remedy=f"Set the pool size to {connections + 1} per concurrent query.",
            )
        # Each query needs one connection more for its snapshot; admitting too many would deadlock.
        self._slots = asyncio.Semaphore(pool.get_max_size() // (self._connections + 1))

    @asynccontextmanager
    async def open_snapshot(
        self, generation: str | None = None, readers: ReaderScope = None
    ) -> AsyncIterator[PgSnapshot]:
        """Open a snapshot of the live generation, or of the named one, for these readers.

        Raises NotFound for an unknown generation, TransientError if none is live, and
        DatabaseUnavailable.
        """
        async with (
            self._slots,
            self._hold_snapshot(generation) as (
                name,
                state,
                live,
                chunks_count,
            ),
        ):
            connections = SnapshotConnections(self._pool, name, self._connections)
            try:
                yield PgSnapshot(live, state, chunks_count, connections, readers)
            finally:
                await connections.close()

    @asynccontextmanager
    async def _hold_snapshot(
        self, generation: str | None
    ) -> AsyncIterator[tuple[str, str, Generation, int]]:
        """Export a snapshot; yields its name, its state, the generation and its number of chunks
        while its transaction is open.
        """
        with translate_database_errors():
            connection = await self._pool.acquire()
        try:
            with translate_database_errors():
                # The exporting transaction must stay open until the last import.
                await connection.execute(BEGIN_READ_ONLY)
                row = await connection.fetchrow(load_query("snapshot"), generation)
            if row is None:
                raise (
                    no_live_generation_error()
                    if generation is None
                    else unknown_generation_error(generation)
                )
            yield (
                row["snapshot"],
                row["snapshot_version"],
                Generation(
                    **{name: row[name] for name in ("name", "config", "how", "topics", "state")}
                ),
                row["chunks"],
            )
        finally:
            # Shielded: a cancelled query must still return its connection.
            await asyncio.shield(rollback_and_release(self._pool, connection))


class PgSnapshot:
    """Implements `schemas.ports.search.IndexSnapshot`."""

    def __init__(
        self,
        generation: Generation,
        state: str,
        chunks_count: int,
        connections: SnapshotConnections,
        readers: ReaderScope,
    ) -> None:
        self.generation, self.state = generation, state
        self._chunks_count, self._connections, self._readers = chunks_count, connections, readers

    async def search_lexical(
        self, tenant: str, text: str, *, language: str | None, filters: Filters, k: int, budget: int
    ) -> LexicalHits:
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            return await lexical.search_lexical(
                connection, scope, text, language, k, budget, self.generation.config.lexical
            )

    async def search_semantic(
        self,
        tenant: str,
        vector: NDArray[np.float32],
        *,
        filters: Filters,
        k: int,
        ef_search: int = DEFAULT_EF_SEARCH,
    ) -> Sequence[Hit]:
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            return await semantic.search_semantic(
                connection,
                scope,
                vector,
                k,
                self._chunks_count,
                ef_search,
                self.generation.config.hnsw,
            )

    async def find_named_documents(
        self, tenant: str, keys: Sequence[str], *, filters: Filters, limit: int
    ) -> Sequence[NamedDocument]:
        if not keys:
            return []
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            rows = await connection.fetch(
                load_query("named_documents"), *scope.to_parameters(), list(keys), limit
            )
        return [NamedDocument(row["key"], row["document_id"], row["chunk_id"]) for row in rows]

    async def link_entities(self, tenant: str, keys: Sequence[str]) -> Sequence[EntitySeed]:
        async with self._connections.acquire() as connection:
            return await graph.link_entities(
                connection, self.generation.name, tenant, keys, self._readers
            )

    async def resolve_seeds(
        self, tenant: str, seeds: Sequence[EntitySeed]
    ) -> Sequence[tuple[UUID, str]]:
        async with self._connections.acquire() as connection:
            rows = await connection.fetch(
                load_query("resolve_seeds"),
                self.generation.name,
                tenant,
                [seed.type for seed in seeds],
                [seed.key for seed in seeds],
            )
        return [(row["entity_id"], row["key"]) for row in rows]

    async def find_aliases(self, tenant: str, keys: Sequence[str]) -> Sequence[EntityAlias]:
        async with self._connections.acquire() as connection:
            return await graph.find_aliases(
                connection, self.generation.name, tenant, keys, self._readers
            )

    async def find_stated_aliases(
        self, tenant: str, keys: Sequence[str], *, documents: Sequence[UUID], filters: Filters
    ) -> Sequence[EntityAlias]:
        async with self._connections.acquire() as connection:
            if not documents:
                scope = await resolve_scope(
                    connection, self.generation, tenant, filters, self._readers
                )
                documents = scope.listed_documents or ()
            return await graph.find_aliases(
                connection, self.generation.name, tenant, keys, self._readers, list(documents)
            )

    async def find_similar_names(
        self, tenant: str, names: Sequence[str], is_similar: Callable[[str, str], bool]
    ) -> Sequence[EntityAlias]:
        async with self._connections.acquire() as connection:
            return await graph.find_similar_names(
                connection, self.generation.name, tenant, names, self._readers, is_similar
            )

    async def search_graph(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
        decay: float,
        filters: Filters,
        k: int,
        min_hops: int = 0,
        max_mentions: int = DEFAULT_MAX_MENTIONS,
    ) -> Sequence[Hit]:
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            return await graph.expand_seeds(
                connection,
                scope,
                seeds,
                hops=hops,
                min_hops=min_hops,
                fan_out=fan_out,
                decay=decay,
                max_mentions=max_mentions,
                k=k,
            )

    async def fetch_entity_graph(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
        filters: Filters,
        max_mentions: int = DEFAULT_MAX_MENTIONS,
    ) -> EntityGraph:
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            return await graph.fetch_entity_graph(
                connection, scope, seeds, hops=hops, fan_out=fan_out, max_mentions=max_mentions
            )

    async def search_graph_nodes(
        self,
        tenant: str,
        *,
        entities: Mapping[UUID, float],
        chunks: Mapping[UUID, float],
        filters: Filters,
        k: int,
        max_mentions: int = DEFAULT_MAX_MENTIONS,
    ) -> Sequence[Hit]:
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            return await graph.search_nodes(connection, scope, entities, chunks, max_mentions, k)

    async def find_graph_evidence(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
        filters: Filters,
        found: Sequence[UUID],
        limit: int,
    ) -> Sequence[GraphEvidence]:
        async with self._connections.acquire() as connection:
            scope = await resolve_scope(connection, self.generation, tenant, filters, self._readers)
            return await graph.find_graph_evidence(
                connection, scope, seeds, hops=hops, fan_out=fan_out, found=found, limit=limit
            )

    async def search_facts(
        self, tenant: str, stems: Sequence[str], now: datetime, limit: int
    ) -> Sequence[Fact]:
        async with self._connections.acquire() as connection:
            return await facts.search_facts(connection, tenant, self._readers, stems, now, limit)

    async def fetch_chunks(
        self, chunk_ids: Sequence[UUID], question: str
    ) -> Mapping[UUID, ChunkView]:
        async with self._connections.acquire() as connection:
            return await chunk_views.fetch_chunks(
                connection, self.generation.name, chunk_ids, question, self._readers
            )

    async def fetch_ranking_facts(
        self,
        tenant: str,
        chunk_ids: Sequence[UUID],
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
    ) -> Mapping[UUID, RankingFacts]:
        async with self._connections.acquire() as connection:
            return await chunk_views.fetch_ranking_facts(
                connection,
                self.generation.name,
                tenant,
                chunk_ids,
                seeds,
                self._readers,
                hops=hops,
                fan_out=fan_out,
            )

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]:
        async with self._connections.acquire() as connection:
            return await chunk_views.fetch_parents(
                connection, self.generation.name, parent_ids, self._readers
            )

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]:
        async with self._connections.acquire() as connection:
            return await chunk_views.fetch_children(
                connection, self.generation.name, parent_ids, self._readers
            )

    async def fetch_child_states(self, parent_ids: Sequence[UUID]) -> Sequence[ChildStates]:
        async with self._connections.acquire() as connection:
            return await chunk_views.fetch_child_states(
                connection, self.generation.name, parent_ids, self._readers
            )

    async def find_missing_collections(self, tenant: str, names: Sequence[str]) -> list[str]:
        async with self._connections.acquire() as connection:
            return [
                row["name"]
                for row in await connection.fetch(
                    load_query("missing_collections"), tenant, list(names), self._readers
                )
            ]

    async def count_chunks(self, tenant: str) -> int:
        async with self._connections.acquire() as connection:
            return int(
                await connection.fetchval(load_query("corpus_size"), self.generation.name, tenant)
            )


class SnapshotConnections:
    """Up to `limit` connections that import an exported snapshot, opened on demand.

    A connection whose statement failed or was cancelled is released, not reused.
    """

    def __init__(self, pool: Pool, snapshot: str, limit: int) -> None:
        self._pool = pool
        self._begin = f"{BEGIN_READ_ONLY}; set transaction snapshot '{snapshot}'"
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[PoolConnectionProxy] = []
        self._releases: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PoolConnectionProxy]:
        """Yield a connection for one call. Raises DatabaseUnavailable."""
        with translate_database_errors():
            async with self._slots:
                connection = self._idle.pop() if self._idle else await self._open_connection()
                try:
                    yield connection
                except BaseException:
                    self._release_in_background(connection)
                    raise
                # Its transaction stays open: the next call reads the same snapshot.
                self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            self._release_in_background(self._idle.pop())
        if self._releases:
            await asyncio.wait(self._releases)

    async def _open_connection(self) -> PoolConnectionProxy:
        connection = await self._pool.acquire()
        try:
            await connection.execute(self._begin)
        except BaseException:
            self._release_in_background(connection)
            raise
        return connection

    def _release_in_background(self, connection: PoolConnectionProxy) -> None:
        # A task of its own: a cancelled caller must not wait for the rollback, nor skip it.
        task = asyncio.create_task(rollback_and_release(self._pool, connection))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)


async def rollback_and_release(pool: Pool, connection: PoolConnectionProxy) -> None:
    """Roll back and release the connection, even if it is lost and has no transaction to end."""
    try:
        with suppress(DatabaseUnavailable), translate_database_errors():
            await connection.execute("rollback")
    finally:
        await pool.release(connection)
