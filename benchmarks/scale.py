"""Costs and latencies while the tables grow to a million documents of one chunk each.

At each size: the cost of one more document, CPU of the idle worker, the build of the vector index,
sizes, and search latency idle and during an ingest. At the last size also recall, and latency after
a restart with cold caches. Worker and API are processes of their own with null engines; the tables
are filled by SQL, and the vectors are a synthetic mixture of clusters.

python -m benchmarks.scale --sizes 10000 100000 1000000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import numpy as np
from numpy.typing import NDArray

from anabranch.composition.storage import prepare_storage
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from benchmarks.document_cost import compute_cost, read_usage
from benchmarks.harness import (
    Timer,
    fetch_postmaster,
    make_natural_texts,
    make_text_records,
    print_report,
    silence_logs,
    start_postgres,
)
from benchmarks.null_engines import FlatEmbedder, make_null_overrides
from benchmarks.processes import measure_tree_cpu
from benchmarks.search_latency import compute_quantiles, draw_queries, measure_ms
from benchmarks.service_processes import ServiceProcess, run_api, run_service, run_worker
from benchmarks.synthetic_tables import ClusteredVectors, add_copies, store_templates
from schemas.generations import Generation
from schemas.ports.engines import QueryEmbedding
from schemas.questions import Filters
from services.storage import Storage
from sql.database import QUESTION_SETTINGS, Pool, close_pool, open_pool
from sql.embedded.server import EmbeddedPostgres
from sql.index.search import PgSearch, ensure_vector_index

TENANT, K = "default", 100
WORDS = 60
QUESTIONS_PER_S = 10
INGEST_BATCH, INGEST_LEAD_S, INGEST_MAX_PER_S = 400, 2, 800
SETTLE_S = 4.0
COUNT_OUTCOMES = "select count(*) from events where position > $1 and topic = 'outcomes'"
SIZES = """
    select coalesce(sum(pg_table_size(c.oid)), 0) as table_bytes,
           coalesce(sum(pg_indexes_size(c.oid)), 0) as index_bytes
    from pg_class c where c.relkind = 'r' and c.oid = $1::regclass
"""


class ClusteredEmbedder(FlatEmbedder):
    """Derives a vector of the mixture from the text's hash."""

    fingerprint = "clustered"

    def __init__(self) -> None:
        self._vectors = ClusteredVectors()

    def _vector(self, text: str) -> NDArray[np.float16]:
        return self._vectors.draw(1, seed=zlib.crc32(text.encode()))[0]

    async def embed_query(self, text: str) -> QueryEmbedding:
        return QueryEmbedding(self._vector(text).astype(np.float32))


def make_overrides() -> Overrides:
    return replace(make_null_overrides(), embedder=ClusteredEmbedder())


@dataclass
class Scale:
    settings: Settings
    server: EmbeddedPostgres
    storage: Storage
    words: int
    pushed: int = 0

    @property
    def pool(self) -> Pool:
        return self.storage.pool

    async def push(self, count: int) -> int:
        """Append new documents, and return the last position before them."""
        texts = make_natural_texts(count, self.words, seed=10**9 + self.pushed)
        records = await make_text_records(texts, prefix=f"new-{self.pushed}")
        self.pushed += count
        position = int(await self.pool.fetchval("select max(position) from events"))
        await self.storage.log.append(records)
        return position

    async def wait_until_indexed(self, position: int, count: int) -> None:
        while await self.pool.fetchval(COUNT_OUTCOMES, position) < count:
            await asyncio.sleep(0.01)

    def run_worker(self) -> Any:
        return run_service(run_worker, self.settings, self.server.dsn, make_overrides)

    @asynccontextmanager
    async def serve_api(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with run_service(run_api, self.settings, self.server.dsn, make_overrides) as api:
            url, headers = api.ready
            async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
                yield client


async def measure_costs(scale: Scale, worker: ServiceProcess, singles: int) -> dict[str, Any]:
    """Measure the cost of documents, ten times as many at once as one at a time."""

    async def measure(documents: int, at_once: int) -> dict[str, float]:
        before = await read_usage(scale.pool, worker.measure_cpu)
        for _ in range(documents // at_once):
            await scale.wait_until_indexed(await scale.push(at_once), at_once)
        after = await read_usage(scale.pool, worker.measure_cpu)
        # The graph stages finish after the documents have become searchable.
        await asyncio.sleep(SETTLE_S)
        return compute_cost(before, after, documents)

    # The first ones fill caches of plans and pages.
    await measure(20, at_once=20)
    return {
        "one_at_a_time": await measure(singles, at_once=1),
        "many_at_once": await measure(10 * singles, at_once=10 * singles),
    }


async def measure_idle(scale: Scale, worker: ServiceProcess, seconds: float) -> dict[str, float]:
    before = await read_usage(scale.pool, worker.measure_cpu)
    await asyncio.sleep(seconds)
    after = await read_usage(scale.pool, worker.measure_cpu)
    elapsed = after.seconds - before.seconds
    return {
        "process_cpu_ms_per_s": 1000 * (after.process_cpu_s - before.process_cpu_s) / elapsed,
        "postgres_cpu_ms_per_s": 1000 * (after.postgres_cpu_s - before.postgres_cpu_s) / elapsed,
    }


async def build_vector_index(scale: Scale, generation: Generation) -> dict[str, float] | None:
    """Build the index as the worker does; None if there are too few vectors for one."""
    postmaster = await fetch_postmaster(scale.pool)
    cpu_s = measure_tree_cpu(postmaster)
    with Timer() as timer:
        if not await ensure_vector_index(scale.pool, generation):
            return None
    return {
        "seconds": timer.seconds,
        "postgres_cpu_s": measure_tree_cpu(postmaster) - cpu_s,
        "bytes": await scale.pool.fetchval(
            "select pg_relation_size($1::regclass)", f"chunk_vectors_near_{generation.name}"
        ),
    }


async def measure_sizes(scale: Scale, generation: str) -> dict[str, Any]:
    tables = ("child_chunks", "parent_chunks", "revision_texts", "chunk_vectors")
    sizes = {table: await scale.pool.fetchrow(SIZES, f"{table}_{generation}") for table in tables}
    return {
        "database": await scale.pool.fetchval("select pg_database_size(current_database())"),
        "index_of_words": await scale.pool.fetchval(
            "select pg_relation_size($1::regclass)", f"child_chunks_{generation}_by_word"
        ),
        **{
            table: {name: int(value) for name, value in row.items()} for table, row in sizes.items()
        },
    }


async def ask(client: httpx2.AsyncClient, question: str) -> bool:
    """Return whether the question was answered; a busy API refuses it."""
    body = {"query": question, "k": 10, "profile": "unreranked"}
    response = await client.post("/v1/search", json=body)
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        return False
    response.raise_for_status()
    return True


async def ask_at_rate(client: httpx2.AsyncClient, questions: Sequence[str]) -> dict[str, Any]:
    """Ask ten questions a second, however long the answers take; latencies from the due times."""
    started_at = time.perf_counter()

    async def ask_when_due(number: int) -> float | None:
        due = started_at + number / QUESTIONS_PER_S
        await asyncio.sleep(due - time.perf_counter())
        answered = await ask(client, questions[number])
        return 1000 * (time.perf_counter() - due) if answered else None

    latencies = await asyncio.gather(*map(ask_when_due, range(len(questions))))
    ms = [latency for latency in latencies if latency is not None]
    return {"refused": len(latencies) - len(ms), **(compute_quantiles(ms) if ms else {})}


async def measure_questions(scale: Scale, questions: Sequence[str]) -> dict[str, Any]:
    """Measure search at ten questions a second with the worker idle, and while it ingests."""
    half = len(questions) // 2
    async with scale.serve_api() as client:
        for question in draw_queries(questions, 20):
            await ask(client, question)
        postmaster = await fetch_postmaster(scale.pool)
        cpu_s = measure_tree_cpu(postmaster)
        idle = await ask_at_rate(client, questions[:half])
        cpu_s = measure_tree_cpu(postmaster) - cpu_s
        n_documents = INGEST_MAX_PER_S * (half // QUESTIONS_PER_S + INGEST_LEAD_S)
        produce = partial(run_producer, n_documents)
        async with run_service(produce, scale.settings, scale.server.dsn, make_overrides):
            await asyncio.sleep(INGEST_LEAD_S)
            during_ingest = await ask_at_rate(client, questions[half:])
    return {
        "postgres_cpu_ms": 1000 * cpu_s / half,
        "idle": idle,
        "during_ingest": during_ingest,
    }


async def run_producer(
    n_documents: int, settings: Settings, dsn: str, _: Overrides, ready: Connection
) -> None:
    """Append documents so that the worker always has some left.

    In a process of its own, and made beforehand: in the one that asks, each batch would keep the
    questions waiting for a tenth of a second.
    """
    async with prepare_storage(settings, dsn, pool_size=2, name="producer") as storage:
        position = int(await storage.pool.fetchval("select max(position) from events"))
        texts = make_natural_texts(n_documents, WORDS, seed=position)
        records = await make_text_records(texts, prefix=f"more-{position}")
        ready.send(None)
        for start in range(0, n_documents, INGEST_BATCH):
            await storage.log.append(records[start : start + INGEST_BATCH])
            while await storage.pool.fetchval(COUNT_OUTCOMES, position) < start:
                await asyncio.sleep(0.05)
        await asyncio.Event().wait()


def report_progress(figures: dict[str, Any]) -> None:
    """Print what is measured so far, since a million documents take long."""
    print(json.dumps(figures), file=sys.stderr, flush=True)


async def measure_size(
    scale: Scale, generation: Generation, size: int, singles: int, questions: int
) -> dict[str, Any]:
    postmaster = await fetch_postmaster(scale.pool)
    cpu_s = measure_tree_cpu(postmaster)
    present = await scale.pool.fetchval("select count(*) from visible")
    await scale.pool.execute(f"drop index if exists chunk_vectors_near_{generation.name}")
    with Timer() as timer:
        await add_copies(scale.pool, present, size, scale.words)
    figures: dict[str, Any] = {
        "documents": size,
        "load": {
            "added": size - present,
            "seconds": timer.seconds,
            "postgres_cpu_s": measure_tree_cpu(postmaster) - cpu_s,
        },
    }
    await scale.pool.execute("vacuum analyze")
    async with scale.run_worker() as worker:
        figures["cost"] = await measure_costs(scale, worker, singles)
    report_progress(figures)
    figures["vector_index"] = await build_vector_index(scale, generation)
    figures["bytes"] = await measure_sizes(scale, generation.name)
    report_progress(figures)
    async with scale.run_worker() as worker:
        if figures["vector_index"]:
            figures["cost_with_vector_index"] = await measure_costs(scale, worker, singles)
        figures["idle_worker"] = await measure_idle(scale, worker, seconds=45)
        report_progress(figures)
        texts = make_natural_texts(questions, scale.words, seed=size)
        figures["questions"] = await measure_questions(scale, draw_queries(texts, questions))
    return figures


async def measure_recall(pool: Pool, vectors: NDArray[np.float16]) -> dict[str, Any]:
    """Compare the ten nearest chunks with those of an exact scan."""
    exact = await find_exact(pool, vectors.astype(np.float32))
    search, ms, found = PgSearch(pool), [], 0
    async with search.open_snapshot() as snapshot:
        for vector, nearest in zip(vectors.astype(np.float32), exact, strict=True):
            started_at = time.perf_counter()
            hits = await snapshot.search_semantic(TENANT, vector, filters=Filters(), k=K)
            ms.append(1000 * (time.perf_counter() - started_at))
            found += len(nearest & {hit.chunk_id for hit in hits[:10]})
    return {"recall_at_10": found / (10 * len(vectors)), "semantic_ms": compute_quantiles(ms)}


async def find_exact(pool: Pool, queries: NDArray[np.float32]) -> list[set[UUID]]:
    best: list[list[tuple[float, UUID]]] = [[] for _ in queries]
    async with pool.acquire() as connection, connection.transaction():
        cursor = await connection.cursor("select chunk_id, embedding from chunk_vectors")
        while rows := await cursor.fetch(50_000):
            matrix = np.array([row["embedding"].to_numpy() for row in rows], np.float32)
            matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
            scores = queries @ matrix.T
            for number, row_scores in enumerate(scores):
                top = np.argpartition(row_scores, -10)[-10:]
                candidates = [(float(row_scores[one]), rows[one]["chunk_id"]) for one in top]
                best[number] = sorted([*best[number], *candidates], reverse=True)[:10]
    return [{chunk_id for _, chunk_id in ranked} for ranked in best]


async def measure_lexical(pool: Pool, questions: Sequence[str]) -> dict[str, float]:
    async with PgSearch(pool).open_snapshot() as snapshot:
        return compute_quantiles(
            [
                await measure_ms(
                    partial(
                        snapshot.search_lexical,
                        TENANT,
                        question,
                        language="en",
                        filters=Filters(),
                        k=K,
                        budget=5000,
                    )
                )
                for question in questions
            ]
        )


async def measure_cold_and_warm(
    scale: Scale, questions: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Ask one question after the other, then the second half again, from warm caches."""
    half = len(questions) // 2
    async with scale.serve_api() as client:
        cold = [await measure_ms(partial(ask, client, question)) for question in questions[:half]]
        for question in questions[half:]:
            await ask(client, question)
        # Other words, so that the answer cache cannot answer.
        warm = [
            await measure_ms(partial(ask, client, " ".join(reversed(question.split()))))
            for question in questions[half:]
        ]
    return {
        "first_10_cold_ms": compute_quantiles(cold[:10]),
        "cold_ms": compute_quantiles(cold),
        "warm_ms": compute_quantiles(warm),
    }


def drop_page_cache(folder: Path) -> None:
    """Remove the files of a stopped server from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def measure(sizes: Sequence[int], singles: int, questions: int) -> dict[str, Any]:
    silence_logs()
    # Vacuuming after the load would count as the cost of the documents that follow.
    async with start_postgres(settings={"autovacuum": "off"}) as (folder, server):
        settings = Settings(data_dir=folder)
        profiles = folder / "profiles"
        profiles.mkdir()
        (profiles / "unreranked.yaml").write_text("rerank: {reranker: none}\n")
        figures: dict[str, Any] = {"benchmark": "scale", "words": WORDS, "sizes": []}
        async with prepare_storage(settings, server.dsn, pool_size=4, name="benchmark") as storage:
            scale = Scale(settings, server, storage, WORDS)
            async with scale.run_worker() as worker:
                generation = worker.ready
                await scale.wait_until_indexed(await scale.push(1), 1)
                await asyncio.sleep(SETTLE_S)
            await store_templates(scale.pool)
            for size in sizes:
                figures["sizes"].append(
                    await measure_size(scale, generation, size, singles, questions)
                )
                report_progress(figures["sizes"][-1])
            texts = make_natural_texts(questions, WORDS, seed=17)
            words = draw_queries(texts, 2 * questions)
            pool = await open_pool(server.dsn, size=4, name="benchmark", settings=QUESTION_SETTINGS)
            figures |= await measure_recall(pool, ClusteredVectors().draw(questions, seed=23))
            figures["lexical_ms"] = await measure_lexical(pool, words[:questions])
            await close_pool(pool)
        server.stop()
        drop_page_cache(folder)
        server.start()
        figures |= await measure_cold_and_warm(scale, words)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--singles", type=int, default=50)
    parser.add_argument("--questions", type=int, default=200)
    print_report(asyncio.run(measure(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
