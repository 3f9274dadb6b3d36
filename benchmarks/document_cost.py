"""What a small document costs, many at once and one at a time: CPU, rows, commits, WAL and storage.

Null engines, so that the figures show what the log, the stages and the tables cost. CPU is that of
this process and of all Postgres processes.

python -m benchmarks.document_cost --documents 2000 --singles 100
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import (
    fetch_postmaster,
    make_synthetic_texts,
    make_text_records,
    run_benchmark,
    run_pipeline,
)
from benchmarks.null_engines import make_null_overrides
from benchmarks.processes import measure_tree_cpu
from sql.database import Pool

STATISTICS_DELAY_S = 1.2
"""Backends report their statistics at most once a second."""
STATISTICS = """
    select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as wal_bytes,
           (select wal_fpi from pg_stat_wal) as full_page_images,
           pg_database_size(current_database()) as database_bytes,
           (select xact_commit from pg_stat_database where datname = current_database()) as commits,
           (select sum(n_tup_ins) from pg_stat_user_tables) as inserted,
           (select sum(n_tup_upd) from pg_stat_user_tables) as updated
"""


@dataclass(frozen=True)
class Usage:
    seconds: float
    process_cpu_s: float
    postgres_cpu_s: float
    statistics: dict[str, float]


async def read_usage(
    pool: Pool, measure_process_cpu: Callable[[], float] = time.process_time
) -> Usage:
    postmaster = await fetch_postmaster(pool)
    clocks = (time.perf_counter(), measure_process_cpu(), measure_tree_cpu(postmaster))
    await asyncio.sleep(STATISTICS_DELAY_S)
    row = await pool.fetchrow(STATISTICS)
    return Usage(*clocks, {name: float(value) for name, value in row.items()})


def compute_cost(before: Usage, after: Usage, documents: int) -> dict[str, float]:
    per_document = {
        name: (after.statistics[name] - before.statistics[name]) / documents
        for name in before.statistics
    }
    seconds = after.seconds - before.seconds - STATISTICS_DELAY_S
    return {
        "documents_per_second": documents / seconds,
        "process_cpu_ms": (after.process_cpu_s - before.process_cpu_s) / documents * 1000,
        "postgres_cpu_ms": (after.postgres_cpu_s - before.postgres_cpu_s) / documents * 1000,
        "rows_inserted": per_document["inserted"],
        "rows_updated": per_document["updated"],
        "commits": per_document["commits"],
        "wal_kib": per_document["wal_bytes"] / 1024,
        "full_page_images": per_document["full_page_images"],
        "database_kib": per_document["database_bytes"] / 1024,
    }


async def measure(documents: int, singles: int, words: int) -> dict[str, Any]:
    records = await make_text_records(make_synthetic_texts(documents + singles, words))
    async with run_pipeline(make_null_overrides()) as bench:
        started = await read_usage(bench.worker.storage.pool)
        await bench.push(records[:documents])
        await bench.wait_until_searchable(documents, poll_s=0.2)
        loaded = await read_usage(bench.worker.storage.pool)
        for number, record in enumerate(records[documents:], documents + 1):
            await bench.push([record])
            await bench.wait_until_searchable(number, poll_s=0.01)
        ended = await read_usage(bench.worker.storage.pool)
    return {
        "benchmark": "document_cost",
        "documents": documents,
        "words": words,
        "many_at_once": compute_cost(started, loaded, documents),
        "one_at_a_time": compute_cost(loaded, ended, singles),
    }


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=2000, singles=100, words=150)
