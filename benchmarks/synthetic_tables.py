"""Fill the tables with copies of one ingested document, each with a text and a vector of its own.

Every uuid of a copy derives from the one of the template and the number of the copy, so references
between tables hold.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from benchmarks.harness import make_natural_texts
from sql.database import Pool

DIMENSION, LATENT_DIMENSION, CLUSTERS = 384, 48, 4096
CLUSTER_SPREAD, NOISE = 0.45, 0.02
BATCH, CONNECTIONS = 10_000, 2
TEMPLATES = {
    "documents": "true",
    "document_revisions": "true",
    "document_owners": "true",
    "revision_texts": "true",
    "parent_chunks": "true",
    "child_chunks": "true",
    "chunk_vectors": "true",
    "revision_parts": "true",
    "visible": "true",
    # Claims of the other stages are pruned.
    "inbox": "stage = 'receive'",
    "job_stages": "true",
    "engine_results": "true",
    "events": "topic <> 'control'",
    "keystore.keys": "true",
}
"""Tables and the condition for the rows that a document leaves in them."""
VALUES = {
    "text": "b.text",
    "markdown": "b.text",
    "embedding": "b.embedding",
    # Before all others, where no reader looks; without payloads, which only need storage.
    "position": "t.position - 1000 * b.n::bigint",
    "xact": "'3'::xid8",
    "headers": "'{}'::jsonb",
    "value": "null::bytea",
    "external_id": "t.external_id || '-' || b.n",
}
COLUMNS = """
    select attname as name, format_type(atttypid, null) as type from pg_attribute
    where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = ''
    order by attnum
"""
COUNT_WORDS = """
    insert into lexical_deltas (generation, tenant, cfg, lexeme, delta)
    select generation, tenant, cfg, lexeme, count(*)
    from child_chunks, unnest(tsvector_to_array(tsv)) lexeme group by 1, 2, 3, 4
"""
COUNT_CHUNKS = """
    insert into corpus_deltas (generation, tenant, cfg, chunks)
    select generation, tenant, cfg, count(*) from child_chunks group by 1, 2, 3
"""


class ClusteredVectors:
    """Unit vectors from a mixture of Gaussians of 48 dimensions in 384.

    Uniform vectors have no near neighbors, so that an approximate index could not find them.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self._centers = rng.normal(size=(CLUSTERS, LATENT_DIMENSION)).astype(np.float32)
        self._projection = (
            rng.normal(size=(LATENT_DIMENSION, DIMENSION)) / np.sqrt(DIMENSION)
        ).astype(np.float32)

    def draw(self, count: int, seed: int) -> NDArray[np.float16]:
        rng = np.random.default_rng(seed)
        latent = self._centers[rng.integers(CLUSTERS, size=count)]
        latent = latent + CLUSTER_SPREAD * rng.normal(size=latent.shape).astype(np.float32)
        vectors = latent @ self._projection
        vectors += NOISE * rng.normal(size=vectors.shape).astype(np.float32)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


async def store_templates(pool: Pool) -> None:
    """Store the rows of the only document."""
    for table, condition in TEMPLATES.items():
        await pool.execute(
            f"create table {_name_template(table)} as select * from {table} where {condition}"
        )


async def add_copies(pool: Pool, start: int, stop: int, words: int) -> None:
    """Insert copies number `start` to `stop`, and count their words."""
    vectors = ClusteredVectors()
    firsts = iter(range(start, stop, BATCH))

    def make_batch(first: int) -> list[tuple[Any, ...]]:
        count = min(BATCH, stop - first)
        texts = make_natural_texts(count, words, seed=first)
        drawn = vectors.draw(count, seed=first)
        return [
            (first + n, text, HalfVector(vector))
            for n, (text, vector) in enumerate(zip(texts, drawn, strict=True))
        ]

    async def insert_batches() -> None:
        for first in firsts:
            batch = await asyncio.to_thread(make_batch, first)
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(
                    "create temp table bench_copies (n int, text text, embedding halfvec) "
                    "on commit drop"
                )
                await connection.copy_records_to_table("bench_copies", records=batch)
                for table in TEMPLATES:
                    await _copy_template(connection, table)

    await asyncio.gather(*(insert_batches() for _ in range(CONNECTIONS)))
    await pool.execute("truncate lexical_deltas, corpus_deltas")
    await pool.execute(COUNT_WORDS)
    await pool.execute(COUNT_CHUNKS)


async def _copy_template(connection: Any, table: str) -> None:
    columns = await connection.fetch(COLUMNS, table)
    names = ", ".join(column["name"] for column in columns)
    values = ", ".join(_format_value(column["name"], column["type"]) for column in columns)
    await connection.execute(
        f"insert into {table} ({names}) overriding system value "
        f"select {values} from {_name_template(table)} t, bench_copies b"
    )


def _format_value(name: str, type_: str) -> str:
    if type_ == "uuid":
        return f"md5(t.{name}::text || b.n)::uuid"
    # Producers' ids of events are text.
    if name == "event_id":
        return "t.event_id || '-' || b.n"
    return VALUES.get(name, f"t.{name}")


def _name_template(table: str) -> str:
    return f"bench_{table.rpartition('.')[2]}"
