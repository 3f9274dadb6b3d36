"""The pipeline with null engines compared to a binary COPY into equal tables with equal indexes.

python -m benchmarks.pipeline_ratio --documents 2000 --words 1200
"""

from __future__ import annotations

from typing import Any

from benchmarks.copy_bound import copy_seconds
from benchmarks.harness import (
    BenchmarkPipeline,
    Timer,
    make_synthetic_texts,
    make_text_records,
    run_benchmark,
    run_pipeline,
)
from benchmarks.null_engines import make_null_overrides

TABLES = (
    "documents",
    "document_revisions",
    "revision_texts",
    "parent_chunks",
    "child_chunks",
    "chunk_vectors",
)


async def measure(documents: int, words: int) -> dict[str, Any]:
    records = await make_text_records(make_synthetic_texts(documents, words))
    async with run_pipeline(make_null_overrides()) as bench:
        with Timer() as timer:
            await bench.push(records)
            await bench.wait_until_searchable(documents)
        chunks = await bench.worker.storage.pool.fetchval("select count(*) from child_chunks")
        copy_s = await time_copy(bench)
    return {
        "benchmark": "pipeline_ratio",
        "documents": documents,
        "words": words,
        "chunks": chunks,
        "pipeline": {
            "seconds": timer.seconds,
            "documents_per_second": documents / timer.seconds,
            "chunks_per_second": chunks / timer.seconds,
        },
        "copy": {
            "seconds": copy_s,
            "documents_per_second": documents / copy_s,
            "chunks_per_second": chunks / copy_s,
        },
        "ratio": copy_s / timer.seconds,
    }


async def time_copy(bench: BenchmarkPipeline) -> float:
    """Return the seconds to COPY the pipeline's rows into empty tables.

    The tables have the same indexes and generated columns.
    """
    pool = bench.worker.storage.pool
    return sum(
        [
            await copy_seconds(
                pool, table, table, like=await find_partition(pool, table), target=f"bench_{table}"
            )
            for table in TABLES
        ]
    )


async def find_partition(pool: Any, table: str) -> str:
    """Return the partition of the live generation, or the table itself if it is not partitioned."""
    partition = await pool.fetchval(
        "select inhrelid::regclass::text from pg_inherits where inhparent = $1::regclass", table
    )
    return str(partition or table)


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=2000, words=1200)
