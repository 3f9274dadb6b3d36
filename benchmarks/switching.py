"""Duration of a switch, a rollback and a drop of a generation under load, and the questions that
fail.

Two generations of 100k chunks serve fifty questions per second over HTTP. The drop runs against an
open transaction that has read the other generation.

    python -m benchmarks.switching --documents 12500
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import numpy as np

from anabranch.config.overrides import Overrides
from benchmarks.harness import (
    BenchmarkPipeline,
    Timer,
    make_synthetic_texts,
    make_text_records,
    run_benchmark,
    run_pipeline,
    serve_api,
)
from benchmarks.null_engines import FlatEmbedder, NullExtractor, NullParser, WordChunker
from services.generations.reindex import start_rebuild
from sql.database import connect
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.index.generations import PgGenerations

REQUESTS_PER_S, MAX_IN_FLIGHT = 50, 16
N_SWITCHES = 5


@dataclass
class LoadGenerator:
    """Sends fifty requests per second, independent of responses, with at most `MAX_IN_FLIGHT` in
    flight.
    """

    client: httpx2.AsyncClient
    queries: Sequence[str]
    in_flight: set[asyncio.Task[None]] = field(default_factory=set)
    latencies_ms: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """Responses by generation or by error."""
    n_skipped: int = 0

    async def run(self) -> None:
        number, next_start = 0, time.perf_counter()
        while True:
            if len(self.in_flight) < MAX_IN_FLIGHT:
                task = asyncio.create_task(self._send(self.queries[number % len(self.queries)]))
                self.in_flight.add(task)
                task.add_done_callback(self.in_flight.discard)
                number += 1
            else:
                self.n_skipped += 1
            next_start += 1 / REQUESTS_PER_S
            await asyncio.sleep(max(0.0, next_start - time.perf_counter()))

    async def _send(self, text: str) -> None:
        started_at = time.perf_counter()
        try:
            response = await self.client.post(
                "/v1/search", json={"query": text, "channels": ["lexical"]}
            )
        except httpx2.HTTPError as error:
            self.answers[repr(error)] += 1
            return
        self.latencies_ms.append(1000 * (time.perf_counter() - started_at))
        self.answers[_classify_response(response)] += 1


def _classify_response(response: httpx2.Response) -> str:
    if response.status_code != 200:
        return f"status {response.status_code}"
    body = response.json()
    return (
        str(body["generation"])
        if body["generation"] == body["trace"]["generation"]
        else "two generations"
    )


@asynccontextmanager
async def generate_load(
    client: httpx2.AsyncClient, queries: Sequence[str]
) -> AsyncIterator[LoadGenerator]:
    generator = LoadGenerator(client, queries)
    generator_task = asyncio.create_task(generator.run())
    await asyncio.sleep(2.0)
    try:
        yield generator
    finally:
        generator_task.cancel()
        await asyncio.gather(generator_task, *generator.in_flight, return_exceptions=True)


def summarize_load(generator: LoadGenerator) -> dict[str, Any]:
    return {
        "questions": sum(generator.answers.values()),
        "answers": dict(generator.answers),
        "skipped": generator.n_skipped,
        "p50_ms": float(np.percentile(generator.latencies_ms, 50)),
        "p95_ms": float(np.percentile(generator.latencies_ms, 95)),
    }


async def time_post(client: httpx2.AsyncClient, path: str, **body: Any) -> float:
    """Return the seconds that the request took."""
    with Timer() as timer:
        (await client.post(f"/v1/generations/{path}", json=body)).raise_for_status()
    return timer.seconds


async def measure_switches(
    client: httpx2.AsyncClient, queries: Sequence[str], name: str
) -> dict[str, Any]:
    """Promote and roll back repeatedly, ending with the original generation."""
    promote_s, rollback_s = [], []
    async with generate_load(client, queries) as generator:
        for _ in range(N_SWITCHES):
            promote_s.append(await time_post(client, f"{name}/promote", force=True))
            await asyncio.sleep(1.0)
            rollback_s.append(await time_post(client, "rollback"))
            await asyncio.sleep(1.0)
    return {"promote_s": promote_s, "rollback_s": rollback_s, **summarize_load(generator)}


async def measure_drop(
    bench: BenchmarkPipeline, client: httpx2.AsyncClient, queries: Sequence[str], name: str
) -> dict[str, Any]:
    reader = await connect(bench.dsn, name="reader")
    transaction = reader.transaction(isolation="repeatable_read")
    await transaction.start()
    n_read = await reader.fetchval("select count(*) from child_chunks where generation = 'g1'")
    async with generate_load(client, queries) as generator:
        with Timer() as answer_timer:
            response_body = (
                (await client.delete(f"/v1/generations/{name}")).raise_for_status().json()
            )
        rows = await count_remaining_rows(bench, name)
        await asyncio.sleep(2.0)
        await transaction.rollback()
        with Timer() as drop_timer:
            while await count_tables(bench, name):
                await asyncio.sleep(0.1)
    await reader.close()
    return {
        "answered_s": answer_timer.seconds,
        "rows_left": rows,
        "response": response_body,
        "reader_read": n_read,
        "tables_gone_after_reader_s": drop_timer.seconds,
        **summarize_load(generator),
    }


async def count_remaining_rows(bench: BenchmarkPipeline, name: str) -> int:
    return sum(
        [
            await bench.worker.storage.pool.fetchval(
                f"select count(*) from {table} where generation = $1", name
            )
            for table in PARTITIONED_TABLES
        ]
    )


async def count_tables(bench: BenchmarkPipeline, name: str) -> int:
    names = [f"{table}_{name}" for table in PARTITIONED_TABLES]
    return int(
        await bench.worker.storage.pool.fetchval(
            "select count(*) from pg_class where relname = any($1::text[])", names
        )
    )


async def measure(documents: int, words: int) -> dict[str, Any]:
    overrides = Overrides(
        parser=NullParser(),
        chunker=WordChunker(),
        embedder=FlatEmbedder(),
        extractor=NullExtractor(),
    )
    texts = make_synthetic_texts(documents, words)
    async with run_pipeline(overrides) as bench:
        await bench.load(await make_text_records(texts))
        name = await start_rebuild(
            bench.worker.storage, bench.worker.builder.decisions, keep_previous=True
        )
        while (
            live := await PgGenerations(bench.worker.storage.pool).fetch_live()
        ) is None or live.name != name:
            await asyncio.sleep(0.5)
        chunks = await bench.worker.storage.pool.fetchval(
            "select count(*) from child_chunks where generation = $1", name
        )
        queries = [" ".join(text.split()[5:8]) for text in texts[:200]]
        async with serve_api(bench.settings, bench.dsn, overrides) as client:
            await time_post(client, "rollback")
            switching = await measure_switches(client, queries, name)
            dropping = await measure_drop(bench, client, queries, name)
    return {
        "benchmark": "switching",
        "documents": documents,
        "chunks_of_each": chunks,
        "switch": switching,
        "drop": dropping,
    }


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=12_500, words=1200)
