"""The whole pipeline with null engines against a raw binary COPY of the same input columns into the same tables with the same indexes.

python -m benchmarks.pipeline_ratio --documents 2000 --words 1200
"""

from __future__ import annotations

from typing import Any

from anabranch.composition.overrides import Overrides
from benchmarks.copying import copy_seconds
from benchmarks.harness import Pipeline, Stopwatch, pipeline, run, synthetic, text_documents
from benchmarks.nulls import FlatEmbedder, NullParser, WordChunker
from engines.extract.null import NullExtractor

TABLES = ("documents", "document_revisions", "revision_texts", "parent_chunks", "child_chunks", "chunk_vectors")


async def measure(documents: int, words: int) -> dict[str, Any]:
    overrides = Overrides(parser=NullParser(), chunker=WordChunker(), embedder=FlatEmbedder(), extractor=NullExtractor())
    records = await text_documents(synthetic(documents, words))
    async with pipeline(overrides) as bench:
        with Stopwatch() as whole:
            await bench.push(records)
            await bench.searchable(documents)
        chunks = await bench.worker.storage.pool.fetchval("select count(*) from child_chunks")
        bound = await copied(bench)
    return {
        "benchmark": "pipeline_ratio",
        "documents": documents,
        "words": words,
        "chunks": chunks,
        "pipeline": {"seconds": whole.seconds, "documents_per_second": documents / whole.seconds, "chunks_per_second": chunks / whole.seconds},
        "copy": {"seconds": bound, "documents_per_second": documents / bound, "chunks_per_second": chunks / bound},
        "ratio": bound / whole.seconds,
    }


async def copied(bench: Pipeline) -> float:
    """Seconds that COPY takes for the rows that the pipeline made, generated columns computed anew, into empty tables with the same indexes."""
    pool = bench.worker.storage.pool
    return sum([await copy_seconds(pool, table, table, like=await partition_of(pool, table), into=f"bench_{table}") for table in TABLES])


async def partition_of(pool: Any, table: str) -> str:
    """The partition of the live generation, or the table itself where it has none."""
    found = await pool.fetchval("select inhrelid::regclass::text from pg_inherits where inhparent = $1::regclass", table)
    return str(found or table)


if __name__ == "__main__":
    run(measure, __doc__, documents=2000, words=1200)
