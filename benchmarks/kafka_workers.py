"""Documents a second with one, two and four worker processes on one Kafka node.

Null engines, documents of one chunk. The workers share the machine with Kafka and Postgres, so the
CPU of each is reported beside the rate. All documents are in `raw` before the workers start.

python -m benchmarks.kafka_workers --documents 2000
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.composition.storage import prepare_storage
from anabranch.config.settings import KafkaSettings, Settings
from benchmarks.document_cost import read_usage
from benchmarks.harness import (
    Timer,
    make_synthetic_texts,
    make_text_records,
    run_benchmark,
    silence_logs,
    start_postgres,
)
from benchmarks.null_engines import make_null_overrides
from benchmarks.processes import measure_tree_cpu
from benchmarks.service_processes import run_service, run_worker
from services.storage import Storage
from streams.kafka.broker import Broker

WORKERS = (1, 2, 4)
PARTITIONS = 12
COUNT_VISIBLE = "select count(*) from visible"


@asynccontextmanager
async def start_broker() -> AsyncIterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-kafka-") as folder:
        broker = Broker(Path(folder))
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


async def measure_workers(broker: Broker, workers: int, documents: int, words: int) -> Any:
    records = await make_text_records(make_synthetic_texts(documents + 1, words))
    kafka = KafkaSettings(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"workers-{workers}.",
        partitions=PARTITIONS,
    )
    async with start_postgres() as (folder, server), AsyncExitStack() as stack:
        settings = Settings(data_dir=folder, kafka=kafka)
        storage = await stack.enter_async_context(
            prepare_storage(settings, server.dsn, pool_size=4, name="benchmark")
        )
        processes = [
            await stack.enter_async_context(
                run_service(run_worker, settings, server.dsn, make_null_overrides)
            )
            for _ in range(workers)
        ]
        # When one document is searchable, the workers have joined their groups.
        await storage.log.append(records[:1])
        await wait_until_visible(storage, 1)
        kafka_pid = broker.status().pid
        assert kafka_pid is not None
        read = partial(
            read_usage, storage.pool, lambda: sum(process.measure_cpu() for process in processes)
        )
        before, kafka_cpu_s = await read(), measure_tree_cpu(kafka_pid)
        with Timer() as timer:
            for start in range(1, len(records), 500):
                await storage.log.append(records[start : start + 500])
            await wait_until_visible(storage, len(records))
        after, kafka_cpu_s = await read(), measure_tree_cpu(kafka_pid) - kafka_cpu_s
    return {
        "workers": workers,
        "documents_per_second": documents / timer.seconds,
        "worker_cpu_ms": 1000 * (after.process_cpu_s - before.process_cpu_s) / documents,
        "postgres_cpu_ms": 1000 * (after.postgres_cpu_s - before.postgres_cpu_s) / documents,
        "kafka_cpu_ms": 1000 * kafka_cpu_s / documents,
    }


async def wait_until_visible(storage: Storage, count: int) -> None:
    while await storage.pool.fetchval(COUNT_VISIBLE) < count:
        await asyncio.sleep(0.05)


async def measure(documents: int, words: int) -> dict[str, Any]:
    silence_logs()
    async with start_broker() as broker:
        return {
            "benchmark": "kafka_workers",
            "cores": os.cpu_count(),
            "documents": documents,
            "partitions": PARTITIONS,
            "runs": [await measure_workers(broker, n, documents, words) for n in WORKERS],
        }


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=2000, words=150)
