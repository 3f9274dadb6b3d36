"""A rebuild from the log against a raw binary COPY of the same input columns and the build of the same indexes, in the same run.

python -m benchmarks.rebuild_ratio --documents 2000 --words 1200
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from anabranch.composition.overrides import Overrides
from anabranch.desk.rebuilding import start_rebuild
from benchmarks.copying import copy_seconds
from benchmarks.harness import Pipeline, Stopwatch, pipeline, run, synthetic, text_documents
from benchmarks.nulls import FlatEmbedder, NullParser, WordChunker
from engines.extract.null import NullExtractor
from sql.builds import Build, PgBuilds
from sql.derived_tables import PARTITIONED
from sql.pool import Pool
from sql.secondary_indexes import SECONDARY


async def measure(documents: int, words: int) -> dict[str, Any]:
    overrides = Overrides(parser=NullParser(), chunker=WordChunker(), embedder=FlatEmbedder(), extractor=NullExtractor())
    records = await text_documents(synthetic(documents, words))
    async with pipeline(overrides, maintenance_s=3600) as bench:
        await bench.push(records)
        await bench.searchable(documents)
        # Until the last reader has finished: the graph follows the words.
        await asyncio.sleep(5)
        phases, build = await rebuilt(bench)
        pool = bench.worker.storage.pool
        copy, indexes = await copied(pool, build.generation.name)
        chunks = await pool.fetchval("select count(*) from child_chunks where generation = $1", build.generation.name)
    rebuild, bound = sum(phases.values()), copy + indexes
    return {
        "benchmark": "rebuild_ratio",
        "documents": documents,
        "words": words,
        "chunks": chunks,
        "events": build.events,
        "rows": build.rows,
        "engine_calls": sum(build.engine_calls.values()),
        "rebuild": {"seconds": rebuild, "phases": phases, "chunks_per_second": chunks / rebuild},
        "copy": {"seconds": bound, "copy": copy, "indexes": indexes, "chunks_per_second": chunks / bound},
        "ratio": bound / rebuild,
    }


async def rebuilt(bench: Pipeline) -> tuple[dict[str, float], Build]:
    """Seconds of each phase until it can answer."""
    worker = bench.worker
    phases: dict[str, float] = {}
    last = time.perf_counter()
    name = await start_rebuild(worker.storage, worker.builder.decisions, keep=True)
    while True:
        build = await PgBuilds(worker.storage.pool).get(name)
        if build is not None and build.error is not None:
            raise RuntimeError(build.error)
        if build is not None and (build.generation.state != "building" or build.phase in ("built", "checking")):
            return phases, build
        phase = build.phase if build is not None else "loading"
        now = time.perf_counter()
        phases[phase] = phases.get(phase, 0.0) + now - last
        last = now
        await asyncio.sleep(0.05)


async def copied(pool: Pool, generation: str) -> tuple[float, float]:
    """Seconds of COPY into tables that have only their primary keys, and of the other indexes afterwards; generated columns are computed anew."""
    copies = [await copy_seconds(pool, table, f"{table}_{generation}", like=table, into=f"{table}_raw") for table in PARTITIONED]
    with Stopwatch() as indexing:
        async with pool.acquire() as connection:
            await connection.execute("set maintenance_work_mem = '512MB'")
            for index in SECONDARY:
                await connection.execute(index.definition("raw", concurrently=False))
            await connection.execute("reset maintenance_work_mem")
    return sum(copies), indexing.seconds


if __name__ == "__main__":
    run(measure, __doc__, documents=2000, words=1200)
