"""Search semantically by cosine similarity: exact while there are few vectors, else by HNSW.

The index is built once a generation has enough vectors. A bulk build costs about a tenth of
inserting the same rows into a live index.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from schemas.channels import DEFAULT_EF_SEARCH
from schemas.generations import Generation, HnswConfig
from schemas.ports.search import Hit
from sql.advisory_locks import try_lock
from sql.errors import translate_database_errors
from sql.index.search_scope import SearchScope
from sql.pool import Connection, Pool
from sql.query_loader import load_query

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
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection:
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
