"""Search snapshots: every retriever of one query reads one state of one generation.

The semantic search is exact while there are few vectors, else by HNSW. That index is built once a
generation has enough vectors: a bulk build costs about a tenth of inserting the same rows into a
live index.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from schemas.channels import DEFAULT_EF_SEARCH
from schemas.citations import GraphEvidence
from schemas.errors import ConfigurationError
from schemas.facts import Fact
from schemas.generations import Generation, HnswConfig
from schemas.ports.search import (
    EntityAlias,
    EntityGraph,
    EntitySeed,
    GraphEdge,
    GraphWalk,
    Hit,
    LexicalHits,
    NamedDocument,
)
from schemas.principals import ReaderScope
from schemas.questions import Filters
from sql.catalog import facts
from sql.database import Connection, PgStore, Pool, acquire, load_query, read_columns, try_lock
from sql.errors import translate_database_errors
from sql.index import lexical
from sql.index.generations import no_live_generation_error, unknown_generation_error
from sql.index.snapshot import (
    BEGIN_READ_ONLY,
    ChunkReader,
    SearchScope,
    SnapshotConnections,
    SnapshotReader,
    rollback_and_release,
)

BUILD_MEMORY_MIB = 512
"""Limit of the memory of a build, unless `maintenance_work_mem` of the server is higher."""
MIN_BUILD_MEMORY_MIB = 64
NODE_BYTES, LINK_BYTES = 256, 48
"""Upper bounds of the memory of a vector in a build: besides its two bytes per dimension, and for
each unit of `m`.
"""

SERVER_MEMORY_MIB = "select pg_size_bytes(current_setting('maintenance_work_mem')) / 1048576"


async def ensure_vector_index(pool: Pool, generation: Generation) -> bool:
    """Build the index once the generation has `hnsw.exact_below` vectors; return whether this call
    built it.

    An interrupted build is dropped and repeated. Blocks neither readers nor writers, but takes
    minutes: use a dedicated connection. Raises DatabaseUnavailable.
    """
    async with acquire(pool, timeout_s=60) as connection:
        vectors = await connection.fetchval(load_query("corpus_size"), generation.name, None)
        if vectors < max(1, generation.config.hnsw.exact_below):
            return False
        # Tried, not waited for: a session blocked in pg_advisory_lock holds a snapshot, which
        # CREATE INDEX CONCURRENTLY waits for.
        async with try_lock(connection, _format_index_name(generation)) as acquired:
            return acquired and await _build_index(connection, generation, vectors)


async def _build_index(connection: Connection, generation: Generation, vectors: int) -> bool:
    state = await connection.fetchrow(
        load_query("vector_index"), generation.name, _format_index_name(generation)
    )
    # No partition (the generation was dropped), or the index exists.
    if state is None or state["valid"]:
        return False
    # An interrupted CREATE INDEX CONCURRENTLY leaves an invalid index, which must be dropped.
    if state["valid"] is not None:
        await connection.execute(
            f'drop index concurrently if exists anabranch."{_format_index_name(generation)}"'
        )
    dimension, hnsw = generation.config.embed.dimension, generation.config.hnsw
    memory_mib = compute_build_memory_mib(
        vectors, dimension, hnsw.m, await connection.fetchval(SERVER_MEMORY_MIB)
    )
    await connection.execute(f"set maintenance_work_mem = '{memory_mib}MB'")
    try:
        await connection.execute(
            f'create index concurrently "{_format_index_name(generation)}" on {state["partition"]} '
            f"using hnsw ((embedding::halfvec({dimension})) halfvec_cosine_ops) "
            f"with (m = {hnsw.m:d}, ef_construction = {hnsw.ef_construction:d})"
        )
    finally:
        await connection.execute("reset maintenance_work_mem")
    return True


def compute_build_memory_mib(vectors: int, dimension: int, m: int, server_mib: int) -> int:
    """Return what the graph needs, up to the limit: a parallel build allocates all of it at once.

    With less, pgvector continues on disk, several times as slowly.
    """
    vector_bytes = 2 * dimension + NODE_BYTES + m * LINK_BYTES
    needed_mib = vectors * vector_bytes // 2**20 + MIN_BUILD_MEMORY_MIB
    return min(needed_mib, max(BUILD_MEMORY_MIB, server_mib))


def _format_index_name(generation: Generation) -> str:
    return f"chunk_vectors_near_{generation.name}"


async def search_semantic(
    connection: Connection,
    scope: SearchScope,
    vector: NDArray[np.float32],
    k: int,
    chunks_count: int,
    ef_search: int,
    config: HnswConfig,
) -> list[Hit]:
    """Return the best k hits. `chunks_count` is that of the generation.

    Runs in a transaction, for which it sets `hnsw.ef_search`.

    Raises ValueError if the vector has another dimension than the generation.
    """
    if scope.is_empty:
        return []
    # HNSW would search all documents and drop nearly every hit of a few listed ones.
    is_exact = scope.listed_documents is not None or chunks_count < config.exact_below
    query = (
        load_query("semantic_exact")
        if is_exact
        # The dimension is text: the query must repeat the cast of the index expression.
        else load_query("semantic_near", dimension=len(vector))
    )
    # The session has the default, which saves most questions a round trip.
    if not is_exact and ef_search != DEFAULT_EF_SEARCH:
        await connection.execute(f"set local hnsw.ef_search = {ef_search:d}")
    rows = await connection.fetch(query, *scope.to_parameters(), HalfVector(vector), k)
    return [
        Hit(row["chunk_id"], row["document_id"], row["score"], row["background_dense"] or 0.0)
        for row in rows
    ]


MAX_SAMPLED_MENTIONS = 2_000
"""Mentions of an entity by which its most frequent spelling is chosen. Not a setting: the spelling
hardly depends on it.
"""
MAX_SIMILAR_KEYS = 1_000
"""Most names to compare with a name of the question. Not a setting: bounds the cost of a query that
reads the index of names.
"""
MAX_MENTIONS = 2_000
"""Most mentions of each entity that are searched. A name on every page says little about any."""
MAX_MENTION_EDGES = 20_000
"""Edges from entities to chunks to read for a random walk. Not a setting: bounds the cost of a
query, and of the walk, which passes over them some 30 times.
"""
MAX_SEED_RELATIONS, MAX_NEIGHBOR_RELATIONS = 100, 5
"""Relations to read per direction of a named entity and of its neighbors. Not a setting: bounds the
cost of a query, whose lines `graph.facts` limits.
"""


class GraphReader(SnapshotReader):
    """The entities of a snapshot and their relations."""

    async def link_entities(self, tenant: str, keys: Sequence[str]) -> list[EntitySeed]:
        if not keys:
            return []
        rows = await self._fetch("link_entities", tenant, list(keys), self._readers)
        return [EntitySeed(row["type"], row["key"], row["weight"]) for row in rows]

    async def resolve_seeds(
        self, tenant: str, seeds: Sequence[EntitySeed]
    ) -> list[tuple[UUID, str]]:
        types, keys, _ = _to_columns(seeds)
        rows = await self._fetch("resolve_seeds", tenant, types, keys)
        return [(row["entity_id"], row["key"]) for row in rows]

    async def find_aliases(self, tenant: str, keys: Sequence[str]) -> list[EntityAlias]:
        return await self._fetch_aliases("aliases_in_question", tenant, keys, None)

    async def find_stated_aliases(
        self, tenant: str, keys: Sequence[str], *, documents: Sequence[UUID], filters: Filters
    ) -> list[EntityAlias]:
        if not documents:
            async with self._open_scope(tenant, filters) as (_, scope):
                documents = scope.listed_documents or ()
        return await self._fetch_aliases("aliases_in_question", tenant, keys, list(documents))

    async def find_similar_names(
        self, tenant: str, names: Sequence[str], is_similar: Callable[[str, str], bool]
    ) -> list[EntityAlias]:
        found = await self._fetch(
            "similar_keys", tenant, list(names), MAX_SIMILAR_KEYS, self._readers
        )
        pairs = [(row["name"], row["key"]) for row in found if is_similar(row["name"], row["key"])]
        if not pairs:
            return []
        similar, keys = zip(*pairs, strict=True)
        return await self._fetch_aliases("similar_entities", tenant, similar, list(keys))

    async def _fetch_aliases(
        self, query: str, tenant: str, keys: Sequence[str], scope: list[Any] | None
    ) -> list[EntityAlias]:
        rows = await self._fetch(
            query, tenant, list(keys), self._readers, MAX_SAMPLED_MENTIONS, scope
        )
        names = ("key", "alias", "entity_key", "type", "name", "is_written", "kind")
        return [EntityAlias(*(row[name] for name in names)) for row in rows]

    async def search_graph(
        self, tenant: str, seeds: Sequence[EntitySeed], walk: GraphWalk, *, filters: Filters, k: int
    ) -> list[Hit]:
        if not seeds:
            return []
        path = walk.hops, walk.fan_out, walk.decay, walk.min_hops
        rows = await self._fetch_in_scope(
            "graph", tenant, filters, MAX_MENTIONS, k, *_to_columns(seeds), *path
        )
        return _to_hits(rows)

    async def fetch_entity_graph(
        self, tenant: str, seeds: Sequence[EntitySeed], walk: GraphWalk, *, filters: Filters
    ) -> EntityGraph:
        if not seeds:
            return EntityGraph({}, ())
        limits, path = (MAX_MENTIONS, MAX_MENTION_EDGES), (walk.hops, walk.fan_out)
        rows = await self._fetch_in_scope(
            "entity_graph", tenant, filters, *limits, *_to_columns(seeds), *path
        )
        names = ("entity_id", "node_id", "document_id", "weight")
        return EntityGraph(
            {row["entity_id"]: row["weight"] for row in rows if row["kind"] == "seed"},
            [GraphEdge(*(row[name] for name in names)) for row in rows if row["kind"] != "seed"],
        )

    async def search_graph_nodes(
        self,
        tenant: str,
        *,
        entities: Mapping[UUID, float],
        chunks: Mapping[UUID, float],
        filters: Filters,
        k: int,
    ) -> list[Hit]:
        if not (entities or chunks):
            return []
        nodes = [list(entities), list(entities.values()), list(chunks), list(chunks.values())]
        return _to_hits(
            await self._fetch_in_scope("graph_nodes", tenant, filters, MAX_MENTIONS, k, *nodes)
        )

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
    ) -> list[GraphEvidence]:
        if not seeds:
            return []
        numbers = {key: n for n, key in enumerate(dict.fromkeys(seed.key for seed in seeds))}
        types, keys, _ = _to_columns(seeds)
        path = hops, fan_out, MAX_SEED_RELATIONS
        limits = list(found), limit, MAX_NEIGHBOR_RELATIONS
        rows = await self._fetch_in_scope(
            "graph_evidence", tenant, filters, types, keys, *path, *limits
        )
        names = ("kind", "hop", "predicate", "weight", "subject_id", "object_id", "document_id")
        return [
            GraphEvidence(
                **{name: row[name] for name in (*names, "parent_id", "chunk_id")},
                subject_seed=numbers.get(row["subject_key"]),
                object_seed=numbers.get(row["object_key"]),
                subject_span=(row["subject_start"], row["subject_end"]),
                object_span=(row["object_start"], row["object_end"]),
                char_start=row["char_start"],
                char_end=row["char_end"],
            )
            for row in rows
        ]


def _to_columns(seeds: Sequence[EntitySeed]) -> list[list[Any]]:
    return read_columns(seeds, "type", "key", "weight")


def _to_hits(rows: Sequence[asyncpg.Record]) -> list[Hit]:
    return [Hit(row["chunk_id"], row["document_id"], row["score"]) for row in rows]


class PgSearch(PgStore):
    """Implements `schemas.ports.search.SearchIndex`.

    A snapshot uses one connection and reads with up to `connections` more; further queries wait
    until the pool has room. Use a separate pool. Raises ConfigurationError for a pool of one
    connection.
    """

    def __init__(self, pool: Pool, *, connections: int = 3) -> None:
        super().__init__(pool)
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
            self._hold_snapshot(generation) as (name, state, live, chunks_count),
        ):
            connections = SnapshotConnections(self._pool, name, self._connections)
            try:
                yield PgSnapshot(live, state, chunks_count, connections, readers)
            finally:
                await connections.close()

    async def find_erased(self, documents: Sequence[UUID]) -> list[UUID]:
        return await self._fetch_column("erased_documents", list(documents))

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


class PgSnapshot(GraphReader, ChunkReader):
    """Implements `schemas.ports.search.IndexSnapshot`."""

    async def search_lexical(
        self, tenant: str, text: str, *, language: str | None, filters: Filters, k: int, budget: int
    ) -> LexicalHits:
        async with self._open_scope(tenant, filters) as (connection, scope):
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
    ) -> list[Hit]:
        hnsw = self.generation.config.hnsw
        async with self._open_scope(tenant, filters) as (connection, scope):
            return await search_semantic(
                connection, scope, vector, k, self._chunks_count, ef_search, hnsw
            )

    async def find_named_documents(
        self, tenant: str, keys: Sequence[str], *, filters: Filters, limit: int
    ) -> list[NamedDocument]:
        if not keys:
            return []
        rows = await self._fetch_in_scope("named_documents", tenant, filters, list(keys), limit)
        return [NamedDocument(row["key"], row["document_id"], row["chunk_id"]) for row in rows]

    async def search_facts(
        self, tenant: str, stems: Sequence[str], now: datetime, limit: int
    ) -> list[Fact]:
        async with self._connections.acquire() as connection:
            return await facts.search_facts(connection, tenant, self._readers, stems, now, limit)

    async def find_missing_collections(self, tenant: str, names: Sequence[str]) -> list[str]:
        query = load_query("missing_collections")
        async with self._connections.acquire() as connection:
            rows = await connection.fetch(query, tenant, list(names), self._readers)
        return [row["name"] for row in rows]

    async def count_chunks(self, tenant: str) -> int:
        [row] = await self._fetch("corpus_size", tenant)
        return int(row[0])
