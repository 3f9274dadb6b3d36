"""A rebuild from the log compared to a binary COPY of its rows and the build of its indexes.

python -m benchmarks.rebuild_ratio --documents 2000 --words 1200
"""

from __future__ import annotations

import asyncio
import time
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
from services.generations.reindex import start_rebuild
from sql.database import Pool
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.index.generations import GenerationBuild, PgGenerationBuilds
from sql.index.partitions import SECONDARY_INDEXES


async def measure(documents: int, words: int) -> dict[str, Any]:
    records = await make_text_records(make_synthetic_texts(documents, words))
    async with run_pipeline(make_null_overrides(), maintenance_s=3600) as bench:
        await bench.push(records)
        await bench.wait_until_searchable(documents)
        # The graph stages finish after the documents have become searchable.
        await asyncio.sleep(5)
        phases, build = await time_rebuild(bench)
        pool = bench.worker.storage.pool
        copy_s, indexes_s = await time_copy_and_indexes(pool, build.generation.name)
        chunks = await pool.fetchval(
            "select count(*) from child_chunks where generation = $1", build.generation.name
        )
    rebuild_s, bound_s = sum(phases.values()), copy_s + indexes_s
    return {
        "benchmark": "rebuild_ratio",
        "documents": documents,
        "words": words,
        "chunks": chunks,
        "events": build.events,
        "rows": build.rows,
        "engine_calls": sum(build.engine_calls.values()),
        "rebuild": {
            "seconds": rebuild_s,
            "phases": phases,
            "chunks_per_second": chunks / rebuild_s,
        },
        "copy": {
            "seconds": bound_s,
            "copy": copy_s,
            "indexes": indexes_s,
            "chunks_per_second": chunks / bound_s,
        },
        "ratio": bound_s / rebuild_s,
    }


async def time_rebuild(bench: BenchmarkPipeline) -> tuple[dict[str, float], GenerationBuild]:
    """Return the seconds of each phase until the generation is built."""
    worker = bench.worker
    phases: dict[str, float] = {}
    last_change = time.perf_counter()
    name = await start_rebuild(worker.storage, worker.builder.decisions, keep_previous=True)
    while True:
        build = await PgGenerationBuilds(worker.storage.pool).get(name)
        if build is not None and build.error is not None:
            raise RuntimeError(build.error)
        if build is not None and (
            build.generation.state != "building" or build.phase in ("built", "checking")
        ):
            return phases, build
        phase = build.phase if build is not None else "loading"
        now = time.perf_counter()
        phases[phase] = phases.get(phase, 0.0) + now - last_change
        last_change = now
        await asyncio.sleep(0.05)


async def time_copy_and_indexes(pool: Pool, generation: str) -> tuple[float, float]:
    """Return the seconds of COPY into tables with only primary keys, and of building the other
    indexes.
    """
    copies = [
        await copy_seconds(pool, table, f"{table}_{generation}", like=table, target=f"{table}_raw")
        for table in PARTITIONED_TABLES
    ]
    with Timer() as timer:
        async with pool.acquire() as connection:
            await connection.execute("set maintenance_work_mem = '512MB'")
            for index in SECONDARY_INDEXES:
                await connection.execute(index.format_ddl("raw", concurrently=False))
            await connection.execute("reset maintenance_work_mem")
    return sum(copies), timer.seconds


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=2000, words=1200)
