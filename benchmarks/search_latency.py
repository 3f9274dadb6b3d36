"""Latency of `/v1/search` over HTTP compared to the SQL of the slowest channel, both p95, over 100k
chunks.

Uses a fixed-vector embedder and no reranker; reranked latency is reported separately.

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

from anabranch.config.overrides import Overrides
from benchmarks.harness import (
    BenchmarkPipeline,
    make_synthetic_texts,
    make_text_records,
    run_benchmark,
    run_pipeline,
    serve_api,
)
from benchmarks.null_engines import FlatEmbedder, NullExtractor, NullParser, WordChunker
from engines.embed.states import Floats, StateScale, TokenIds, normalize_rows, pack_states
from schemas.ports.engines import QueryEmbedding, TextEmbedding, TokenSpans
from schemas.ports.search import EntitySeed, GraphWalk
from schemas.questions import Filters
from sql.database import close_pool, open_pool
from sql.index.lexical import compact_lexical
from sql.index.search import PgSearch, ensure_vector_index

TENANT, K = "default", 100


def draw_queries(texts: Sequence[str], count: int) -> list[str]:
    """Draw six words from one document for each query."""
    rng = random.Random(11)
    return [" ".join(rng.sample(rng.choice(texts).split(), 6)) for _ in range(count)]


async def measure_ms(request: Callable[[], Awaitable[Any]]) -> float:
    started_at = time.perf_counter()
    await request()
    return 1000 * (time.perf_counter() - started_at)


def compute_quantiles(ms: Sequence[float]) -> dict[str, float]:
    return {"p50": float(np.percentile(ms, 50)), "p95": float(np.percentile(ms, 95))}


async def measure_channels(
    bench: BenchmarkPipeline, queries: Sequence[str], vector: Any
) -> dict[str, dict[str, float]]:
    """Measure each channel's SQL alone, one question at a time."""
    pool = await open_pool(bench.dsn, size=4, name="benchmark")
    latencies_ms: dict[str, list[float]] = {"lexical": [], "semantic": [], "graph": []}
    try:
        search = PgSearch(pool)
        for text in queries:
            async with search.open_snapshot() as snapshot:
                no_filters, seeds = (
                    Filters(),
                    [EntitySeed("MISC", word, 1.0) for word in text.split()],
                )
                latencies_ms["lexical"].append(
                    await measure_ms(
                        lambda: snapshot.search_lexical(
                            TENANT,
                            text,  # noqa: B023
                            language="en",
                            filters=no_filters,  # noqa: B023
                            k=K,
                            budget=5000,  # noqa: B023, RUF100
                        )
                    )
                )
                latencies_ms["semantic"].append(
                    await measure_ms(
                        lambda: snapshot.search_semantic(TENANT, vector, filters=no_filters, k=K)  # noqa: B023
                    )
                )
                latencies_ms["graph"].append(
                    await measure_ms(
                        lambda: snapshot.search_graph(
                            TENANT,
                            seeds,  # noqa: B023
                            GraphWalk(2, 25),
                            filters=no_filters,  # noqa: B023
                            k=50,  # noqa: B023, RUF100
                        )
                    )
                )
    finally:
        await close_pool(pool)
    return {name: compute_quantiles(ms) for name, ms in latencies_ms.items()}


async def measure_http(
    bench: BenchmarkPipeline, overrides: Overrides, queries: Sequence[str], profile: str
) -> dict[str, float]:
    async with serve_api(bench.settings, bench.dsn, overrides) as client:
        for text in queries[:20]:
            (
                await client.post("/v1/search", json={"query": text, "profile": profile})
            ).raise_for_status()
        ms = [
            await measure_ms(
                lambda: client.post("/v1/search", json={"query": text, "k": 10, "profile": profile})  # noqa: B023
            )
            for text in queries
        ]
    return compute_quantiles(ms)


async def measure(documents: int, questions: int) -> dict[str, Any]:
    texts = make_synthetic_texts(documents, 1200)
    embedder = StatefulEmbedder()
    overrides = Overrides(
        parser=NullParser(), chunker=WordChunker(), embedder=embedder, extractor=NullExtractor()
    )
    async with run_pipeline(overrides, maintenance_s=3600) as bench:
        await bench.load(await make_text_records(texts))
        pool = bench.worker.storage.pool
        while await compact_lexical(pool, bench.worker.generation.name):
            pass
        await ensure_vector_index(pool, bench.worker.generation)
        await pool.execute("vacuum analyze")
        queries = draw_queries(texts, questions)
        query = await embedder.embed_query(queries[0])
        fixed_overrides = replace(overrides, embedder=FixedEmbedder(embedder, query))
        channel_ms = await measure_channels(bench, queries, query.vector)
        profiles = bench.settings.data_dir / "profiles"
        profiles.mkdir()
        (profiles / "unreranked.yaml").write_text("rerank: {reranker: none}\n")
        search_ms, reranked_ms = [
            await measure_http(bench, fixed_overrides, queries, profile)
            for profile in ("unreranked", "default")
        ]
        chunks = await pool.fetchval("select count(*) from child_chunks")
    slowest = max(figures["p95"] for figures in channel_ms.values())
    return {
        "benchmark": "search_latency",
        "chunks": chunks,
        "questions": questions,
        "channels_ms": channel_ms,
        "search_ms": search_ms,
        "reranked_ms": reranked_ms,
        "ratio_p95": search_ms["p95"] / slowest,
    }


class StatefulEmbedder(FlatEmbedder):
    """Adds random token states to each passage, as input for the reranker."""

    state_dimension = 256
    scale = StateScale.for_random_rows(state_dimension)

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        return [
            replace(embedding, states=pack_states(*self._draw(text), self.scale))
            for text, embedding in zip(texts, await super().embed(texts), strict=True)
        ]

    async def embed_query(self, text: str) -> QueryEmbedding:
        states, token_ids = self._draw(text)
        return replace(
            await super().embed_query(text),
            states=states,
            token_ids=token_ids,
            background_maxsim_mean=0.0,
        )

    def _draw(self, text: str) -> tuple[Floats, TokenIds]:
        rng, n_tokens = np.random.default_rng(zlib.crc32(text.encode())), text.count(" ") + 1
        rows = rng.normal(size=(n_tokens, self.state_dimension)).astype(np.float32)
        return normalize_rows(rows), rng.integers(0, 250_000, n_tokens, np.int32)


class FixedEmbedder:
    """Returns the same query embedding for every question, to exclude the model's time."""

    def __init__(self, inner: FlatEmbedder, query: QueryEmbedding) -> None:
        self.inner, self.query = inner, query
        self.fingerprint, self.model, self.dimension, self.state_dimension = (
            inner.fingerprint,
            inner.model,
            inner.dimension,
            inner.state_dimension,
        )

    async def embed(self, texts: Sequence[str]) -> Any:
        return await self.inner.embed(texts)

    async def embed_query(self, text: str) -> QueryEmbedding:
        return self.query

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return await self.inner.locate_tokens(texts)


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=12_500, questions=200)
