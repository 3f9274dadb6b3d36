"""Two generations of 100k chunks while fifty questions a second are asked over HTTP: how long a switch, a rollback and a drop take, and whether any question fails.
The drop meets a transaction that has read the other generation and stays open.

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

from anabranch.composition.overrides import Overrides
from anabranch.desk.rebuilding import start_rebuild
from benchmarks.harness import Pipeline, Stopwatch, pipeline, run, served, synthetic, text_documents
from benchmarks.nulls import FlatEmbedder, NullParser, WordChunker
from engines.extract.null import NullExtractor
from sql.derived_tables import PARTITIONED
from sql.generations import PgGenerations
from sql.pool import connect

PER_SECOND, MOST = 50, 16
TURNS = 5


@dataclass
class Asker:
    """Fifty a second, whether or not those before have been answered, as long as no more than `MOST` are under way."""

    client: httpx2.AsyncClient
    asked: Sequence[str]
    under_way: set[asyncio.Task[None]] = field(default_factory=set)
    ms: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """By the generation that they name, or by what went wrong."""
    held_back: int = 0

    async def run(self) -> None:
        number, following = 0, time.perf_counter()
        while True:
            if len(self.under_way) < MOST:
                task = asyncio.create_task(self._ask(self.asked[number % len(self.asked)]))
                self.under_way.add(task)
                task.add_done_callback(self.under_way.discard)
                number += 1
            else:
                self.held_back += 1
            following += 1 / PER_SECOND
            await asyncio.sleep(max(0.0, following - time.perf_counter()))

    async def _ask(self, text: str) -> None:
        started = time.perf_counter()
        try:
            response = await self.client.post("/v1/search", json={"query": text, "channels": ["lexical"]})
        except httpx2.HTTPError as error:
            self.answers[repr(error)] += 1
            return
        self.ms.append(1000 * (time.perf_counter() - started))
        self.answers[_told(response)] += 1


def _told(response: httpx2.Response) -> str:
    if response.status_code != 200:
        return f"status {response.status_code}"
    body = response.json()
    return str(body["generation"]) if body["generation"] == body["trace"]["generation"] else "two generations"


@asynccontextmanager
async def asking(client: httpx2.AsyncClient, asked: Sequence[str]) -> AsyncIterator[Asker]:
    asker = Asker(client, asked)
    running = asyncio.create_task(asker.run())
    await asyncio.sleep(2.0)
    try:
        yield asker
    finally:
        running.cancel()
        await asyncio.gather(running, *asker.under_way, return_exceptions=True)


def load(asker: Asker) -> dict[str, Any]:
    return {
        "questions": sum(asker.answers.values()),
        "answers": dict(asker.answers),
        "held_back": asker.held_back,
        "p50_ms": float(np.percentile(asker.ms, 50)),
        "p95_ms": float(np.percentile(asker.ms, 95)),
    }


async def posted(client: httpx2.AsyncClient, path: str) -> float:
    """Seconds that the request took."""
    with Stopwatch() as watch:
        (await client.post(f"/v1/generations/{path}", json={})).raise_for_status()
    return watch.seconds


async def switched(client: httpx2.AsyncClient, asked: Sequence[str], name: str) -> dict[str, Any]:
    """There and back. It ends where it began."""
    there, back = [], []
    async with asking(client, asked) as asker:
        for _ in range(TURNS):
            there.append(await posted(client, f"{name}/promote"))
            await asyncio.sleep(1.0)
            back.append(await posted(client, "rollback"))
            await asyncio.sleep(1.0)
    return {"promote_s": there, "rollback_s": back, **load(asker)}


async def dropped(bench: Pipeline, client: httpx2.AsyncClient, asked: Sequence[str], name: str) -> dict[str, Any]:
    reader = await connect(bench.dsn, name="reader")
    transaction = reader.transaction(isolation="repeatable_read")
    await transaction.start()
    held = await reader.fetchval("select count(*) from child_chunks where generation = 'g1'")
    async with asking(client, asked) as asker:
        with Stopwatch() as answered:
            gone = (await client.delete(f"/v1/generations/{name}")).raise_for_status().json()
        rows = await left(bench, name)
        await asyncio.sleep(2.0)
        await transaction.rollback()
        with Stopwatch() as finished:
            while await tables(bench, name):
                await asyncio.sleep(0.1)
    await reader.close()
    return {"answered_s": answered.seconds, "rows_left": rows, "said": gone, "reader_read": held, "tables_gone_after_reader_s": finished.seconds, **load(asker)}


async def left(bench: Pipeline, name: str) -> int:
    return sum([await bench.worker.storage.pool.fetchval(f"select count(*) from {table} where generation = $1", name) for table in PARTITIONED])


async def tables(bench: Pipeline, name: str) -> int:
    names = [f"{table}_{name}" for table in PARTITIONED]
    return int(await bench.worker.storage.pool.fetchval("select count(*) from pg_class where relname = any($1::text[])", names))


async def measure(documents: int, words: int) -> dict[str, Any]:
    overrides = Overrides(parser=NullParser(), chunker=WordChunker(), embedder=FlatEmbedder(), extractor=NullExtractor())
    texts = synthetic(documents, words)
    async with pipeline(overrides) as bench:
        await bench.load(await text_documents(texts))
        name = await start_rebuild(bench.worker.storage, bench.worker.builder.decisions, keep=True)
        while (live := await PgGenerations(bench.worker.storage.pool).live()) is None or live.name != name:
            await asyncio.sleep(0.5)
        chunks = await bench.worker.storage.pool.fetchval("select count(*) from child_chunks where generation = $1", name)
        asked = [" ".join(text.split()[5:8]) for text in texts[:200]]
        async with served(bench, overrides) as client:
            await posted(client, "rollback")
            switching = await switched(client, asked, name)
            dropping = await dropped(bench, client, asked, name)
    return {"benchmark": "switching", "documents": documents, "chunks_of_each": chunks, "switch": switching, "drop": dropping}


if __name__ == "__main__":
    run(measure, __doc__, documents=12_500, words=1200)
