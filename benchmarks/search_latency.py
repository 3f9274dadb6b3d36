"""`/v1/search` over HTTP against the slowest single channel's SQL, both p95, over 100k chunks with a fixed-vector embedder and no reranker.

python -m benchmarks.search_latency --documents 12500 --questions 200
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anabranch.composition.overrides import Overrides
from benchmarks.harness import Pipeline, pipeline, run, served, synthetic, text_documents
from benchmarks.nulls import FlatEmbedder, NullParser, WordChunker
from engines.extract.null import NullExtractor
from schemas.ports.search import Seed
from schemas.questions import Filters
from sql.compaction import compact_lexical
from sql.pool import close_pool, open_pool
from sql.search import PgSearch
from sql.vector_index import ensure_vector_index

TENANT, K = "default", 100


def questions(texts: Sequence[str], count: int) -> list[str]:
    """Six words of one document each."""
    mood = random.Random(11)
    return [" ".join(mood.sample(mood.choice(texts).split(), 6)) for _ in range(count)]


async def timed(ask: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await ask()
    return 1000 * (time.perf_counter() - started)


def quantiles(ms: Sequence[float]) -> dict[str, float]:
    return {"p50": float(np.percentile(ms, 50)), "p95": float(np.percentile(ms, 95))}


async def channels(bench: Pipeline, asked: Sequence[str], vector: Any) -> dict[str, dict[str, float]]:
    """Each channel's SQL alone, one question at a time."""
    pool = await open_pool(bench.dsn, size=4, name="benchmark")
    found: dict[str, list[float]] = {"lexical": [], "semantic": [], "graph": []}
    try:
        search = PgSearch(pool)
        for text in asked:
            async with search.snapshot() as snapshot:
                everything, seeds = Filters(), [Seed("MISC", word, 1.0) for word in text.split()]
                found["lexical"].append(await timed(lambda: snapshot.lexical(TENANT, text, language="en", filters=everything, k=K, budget=5000)))  # noqa: B023
                found["semantic"].append(await timed(lambda: snapshot.semantic(TENANT, vector, filters=everything, k=K)))  # noqa: B023
                found["graph"].append(await timed(lambda: snapshot.graph(TENANT, seeds, hops=2, fan_out=25, decay=0.5, filters=everything, k=50)))  # noqa: B023
    finally:
        await close_pool(pool)
    return {name: quantiles(ms) for name, ms in found.items()}


async def over_http(bench: Pipeline, overrides: Overrides, asked: Sequence[str], profile: str) -> dict[str, float]:
    async with served(bench, overrides) as client:
        for text in asked[:20]:
            (await client.post("/v1/search", json={"query": text, "profile": profile})).raise_for_status()
        ms = [await timed(lambda: client.post("/v1/search", json={"query": text, "k": 10, "profile": profile})) for text in asked]  # noqa: B023
    return quantiles(ms)


async def measure(documents: int, count: int) -> dict[str, Any]:
    texts = synthetic(documents, 1200)
    embedder = FlatEmbedder()
    overrides = Overrides(parser=NullParser(), chunker=WordChunker(), embedder=embedder, extractor=NullExtractor())
    async with pipeline(overrides, maintenance_s=3600) as bench:
        await bench.load(await text_documents(texts))
        pool = bench.worker.storage.pool
        while await compact_lexical(pool, bench.worker.generation.name):
            pass
        await ensure_vector_index(pool, bench.worker.generation)
        await pool.execute("vacuum analyze")
        asked = questions(texts, count)
        vector = (await embedder.embed_query(asked[0])).vector
        fixed = replace(overrides, embedder=FixedEmbedder(embedder, vector))
        alone = await channels(bench, asked, vector)
        profiles = bench.settings.data_dir / "profiles"
        profiles.mkdir()
        (profiles / "unreranked.yaml").write_text("rerank: {reranker: none}\n")
        whole = await over_http(bench, fixed, asked, "unreranked")
        chunks = await pool.fetchval("select count(*) from child_chunks")
    slowest = max(figures["p95"] for figures in alone.values())
    return {"benchmark": "search_latency", "chunks": chunks, "questions": count, "channels_ms": alone, "search_ms": whole, "ratio_p95": whole["p95"] / slowest}


class FixedEmbedder:
    """The same vector for every question: the model's time is not what is measured."""

    def __init__(self, inner: FlatEmbedder, vector: Any) -> None:
        self.inner, self.vector = inner, vector
        self.fingerprint, self.model, self.dimension, self.state_dimension = inner.fingerprint, inner.model, inner.dimension, inner.state_dimension

    async def embed(self, texts: Sequence[str]) -> Any:
        return await self.inner.embed(texts)

    async def embed_query(self, text: str) -> Any:
        from schemas.ports.engines import EmbeddedQuery

        return EmbeddedQuery(self.vector)


if __name__ == "__main__":
    run(measure, __doc__, documents=12_500, questions=200)
