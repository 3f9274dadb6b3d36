"""`/v1/search` over HTTP against the slowest single channel's SQL, both p95, over 100k chunks with a fixed-vector embedder and no reranker; reranked beside it.

python -m benchmarks.search_latency --documents 12500 --questions 200
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anabranch.composition.overrides import Overrides
from benchmarks.harness import Pipeline, pipeline, run, served, synthetic, text_documents
from benchmarks.nulls import FlatEmbedder, NullParser, WordChunker
from engines.extract.null import NullExtractor
from schemas.ports.engines import Embedded, EmbeddedQuery
from schemas.ports.search import Seed
from schemas.questions import Filters
from sql.compaction import compact_lexical
from sql.pool import close_pool, open_pool
from sql.search import PgSearch
from sql.vector_index import ensure_vector_index

TENANT, K = "default", 100


def drawn(texts: Sequence[str], count: int) -> list[str]:
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


async def measure(documents: int, questions: int) -> dict[str, Any]:
    texts = synthetic(documents, 1200)
    embedder = StatefulEmbedder()
    overrides = Overrides(parser=NullParser(), chunker=WordChunker(), embedder=embedder, extractor=NullExtractor())
    async with pipeline(overrides, maintenance_s=3600) as bench:
        await bench.load(await text_documents(texts))
        pool = bench.worker.storage.pool
        while await compact_lexical(pool, bench.worker.generation.name):
            pass
        await ensure_vector_index(pool, bench.worker.generation)
        await pool.execute("vacuum analyze")
        asked = drawn(texts, questions)
        query = await embedder.embed_query(asked[0])
        fixed = replace(overrides, embedder=FixedEmbedder(embedder, query))
        alone = await channels(bench, asked, query.vector)
        profiles = bench.settings.data_dir / "profiles"
        profiles.mkdir()
        (profiles / "unreranked.yaml").write_text("rerank: {reranker: none}\n")
        whole, reranked = [await over_http(bench, fixed, asked, profile) for profile in ("unreranked", "default")]
        chunks = await pool.fetchval("select count(*) from child_chunks")
    slowest = max(figures["p95"] for figures in alone.values())
    return {
        "benchmark": "search_latency",
        "chunks": chunks,
        "questions": questions,
        "channels_ms": alone,
        "search_ms": whole,
        "reranked_ms": reranked,
        "ratio_p95": whole["p95"] / slowest,
    }


class StatefulEmbedder(FlatEmbedder):
    """With token states, drawn anew for each passage, for the reranker to read."""

    state_dimension = 64

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        return [replace(embedded, **self._states(text)) for text, embedded in zip(texts, await super().embed(texts), strict=True)]

    async def embed_query(self, text: str) -> EmbeddedQuery:
        drawn = self._states(text)
        return replace(await super().embed_query(text), states=drawn["states"] / np.float32(127), token_ids=drawn["token_ids"], background_maxsim_mean=0.0)

    def _states(self, text: str) -> dict[str, Any]:
        draw, tokens = np.random.default_rng(zlib.crc32(text.encode())), text.count(" ") + 1
        return {"states": draw.integers(-20, 20, (tokens, self.state_dimension), np.int8), "token_ids": draw.integers(0, 250_000, tokens, np.int32)}


class FixedEmbedder:
    """The same answer for every question: the model's time is not what is measured."""

    def __init__(self, inner: FlatEmbedder, query: EmbeddedQuery) -> None:
        self.inner, self.query = inner, query
        self.fingerprint, self.model, self.dimension, self.state_dimension = inner.fingerprint, inner.model, inner.dimension, inner.state_dimension

    async def embed(self, texts: Sequence[str]) -> Any:
        return await self.inner.embed(texts)

    async def embed_query(self, text: str) -> EmbeddedQuery:
        return self.query


if __name__ == "__main__":
    run(measure, __doc__, documents=12_500, questions=200)
