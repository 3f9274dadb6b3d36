"""Vector indexes of pgvector side by side: HNSW as the semantic channel builds it, and IVFFlat.

    python -m benchmarks.vector_indexes PATH/TO/scifact PATH/TO/2wikimultihop

Each PATH is a folder in the format of `eval retrieval`. The local model embeds its documents, cut
to the length of a chunk, and its questions. Recall is that of the ten nearest of an exact scan.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from benchmarks.harness import Timer, print_report, start_postgres
from benchmarks.search_latency import compute_quantiles
from engines.embed.e5 import E5Embedder
from evaluation.retrieval_eval import read_retrieval_set
from schemas.generations import HnswConfig
from schemas.values import format_embedding_text
from sql.database import connect
from sql.operations.migrate import migrate

K = 10
CHUNK_CHARACTERS = 900
BATCH = 256
HNSW = HnswConfig()
INDEXES: Mapping[str, tuple[str, str, Sequence[int]]] = {
    "hnsw": (
        f"m = {HNSW.m}, ef_construction = {HNSW.ef_construction}",
        "hnsw.ef_search",
        (20, 40, 100, 200),
    ),
    "ivfflat": ("lists = 100", "ivfflat.probes", (1, 5, 10, 20)),
}
"""Options of each index, and the setting of a search with the values that are measured."""
NEAREST = f"select id from vectors order by embedding <=> $1 limit {K}"


async def embed_sets(
    folders: Sequence[Path],
) -> tuple[list[NDArray[np.float16]], list[NDArray[np.float16]]]:
    """Return the vectors of all documents and of all questions."""
    passages: list[str] = []
    questions: list[str] = []
    for folder in folders:
        test_set = read_retrieval_set(folder)
        passages += [
            format_embedding_text(document.title or "", document.text[:CHUNK_CHARACTERS])
            for document in test_set.documents
        ]
        questions += [query.text for query in test_set.queries]
    with tempfile.TemporaryDirectory() as models:
        embedder = E5Embedder(Path(models), state_dimension=0)
        try:
            vectors: list[NDArray[np.float16]] = []
            for start in range(0, len(passages), BATCH):
                embedded = await embedder.embed(passages[start : start + BATCH])
                vectors += [item.vector for item in embedded]
            asked = [(await embedder.embed_query(text)).vector for text in questions]
        finally:
            embedder.close()
    return vectors, [vector.astype(np.float16) for vector in asked]


async def search(
    connection: asyncpg.Connection, queries: Sequence[NDArray[np.float16]]
) -> tuple[list[set[int]], dict[str, float]]:
    """Return the ids of the nearest of each query, and milliseconds."""
    nearest, milliseconds = [], []
    for query in queries:
        with Timer() as timer:
            rows = await connection.fetch(NEAREST, HalfVector(query))
        nearest.append({row["id"] for row in rows})
        milliseconds.append(timer.seconds * 1000)
    return nearest, compute_quantiles(milliseconds)


async def measure(folders: Sequence[Path]) -> dict[str, Any]:
    vectors, queries = await embed_sets(folders)
    async with start_postgres() as (_, server):
        await migrate(server.dsn)
        connection = await connect(server.dsn, name="benchmark")
        try:
            await connection.execute(
                "set max_parallel_workers_per_gather = 0; set maintenance_work_mem = '512MB';"
                f"create table vectors (id int, embedding halfvec({len(vectors[0])}))"
            )
            await connection.copy_records_to_table(
                "vectors",
                records=[(n, HalfVector(vector)) for n, vector in enumerate(vectors)],
            )
            await connection.execute("vacuum analyze vectors")
            exact, exact_ms = await search(connection, queries)
            figures: dict[str, Any] = {"exact": {"ms": exact_ms}}
            for kind in INDEXES:
                figures[kind] = await measure_index(connection, kind, queries, exact)
        finally:
            await connection.close()
    return {"vectors": len(vectors), "queries": len(queries), **figures}


async def measure_index(
    connection: asyncpg.Connection,
    kind: str,
    queries: Sequence[NDArray[np.float16]],
    exact: Sequence[set[int]],
) -> dict[str, Any]:
    options, setting, values = INDEXES[kind]
    with Timer() as build:
        await connection.execute(
            f"create index nearest on vectors using {kind} (embedding halfvec_cosine_ops) "
            f"with ({options})"
        )
    searches = {}
    for value in values:
        await connection.execute(f"set {setting} = {value}; set enable_seqscan = off")
        found, milliseconds = await search(connection, queries)
        recall = fmean(
            len(ids & right) / len(right) for ids, right in zip(found, exact, strict=True)
        )
        searches[f"{setting} {value}"] = {"recall@10": round(recall, 4), "ms": milliseconds}
    size = await connection.fetchval("select pg_relation_size('nearest')")
    await connection.execute("drop index nearest; reset enable_seqscan")
    return {
        "options": options,
        "build_s": round(build.seconds, 2),
        "bytes_per_vector": round(size / await connection.fetchval("select count(*) from vectors")),
        "searches": searches,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.vector_indexes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="PATH")
    print_report(asyncio.run(measure(parser.parse_args().folders)))
