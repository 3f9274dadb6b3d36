"""Retrievers of every generation that can be queried, prepared with their caches before the first
query.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from retrieval.ranking.query_context import Clock, OnCacheUse, QueryEmbeddingCache
from retrieval.retriever import Retriever
from retrieval.runs.answer_cache import AnswerCache
from schemas.errors import AnabranchError, TransientError
from schemas.generations import EmbedConfig, Generation
from schemas.ports.engines import Embedder, QueryEmbedding, TextEmbedding, TokenSpans
from services.background_tasks import run_in_background
from services.engines import make_outdated_error
from sql.database import Pool
from sql.index.generations import PgGenerations, generation_not_built_error
from sql.invalidation import PgIndexChanges

INVALIDATION_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Caches:
    answers: AnswerCache | None = None
    embeddings: QueryEmbeddingCache | None = None


@asynccontextmanager
async def open_caches(
    pool: Pool,
    embedder: Embedder,
    clock: Clock,
    on_cache_use: OnCacheUse,
    *,
    embedding_entries: int,
    answer_entries: int,
    answer_ttl_s: float,
) -> AsyncIterator[Caches]:
    """Open the caches for one embedder; 0 entries disables a cache. Stale answers are evicted
    within a second.
    """
    embeddings = (
        QueryEmbeddingCache(embedder, max_entries=embedding_entries, on_use=on_cache_use)
        if embedding_entries
        else None
    )
    if not answer_entries:
        yield Caches(embeddings=embeddings)
        return
    ttl = timedelta(seconds=answer_ttl_s)
    answers = AnswerCache(
        PgIndexChanges(pool), clock, max_entries=answer_entries, ttl=ttl, on_use=on_cache_use
    )
    async with run_in_background(invalidate_periodically(answers)):
        yield Caches(answers, embeddings)


async def invalidate_periodically(answers: AnswerCache) -> None:
    """Evict stale answers until cancelled."""
    while True:
        await asyncio.sleep(INVALIDATION_INTERVAL_S)
        try:
            await answers.evict_stale()
        except Exception:
            # Keep running: a cache that stops evicting would serve documents that are erased later.
            log.exception("answer_cache_eviction_failed")


log = structlog.get_logger(__name__)
FIRST_POLL_S = 0.05
POLL_S = 1.0
PrepareRetriever = Callable[[Generation], AbstractAsyncContextManager[Retriever]]


@dataclass(slots=True)
class PooledRetriever:
    """One retriever, shared by all generations with the same embedding."""

    stack: AsyncExitStack
    retriever: Retriever | None = None
    error: AnabranchError | None = None
    user_count: int = 0


@dataclass(slots=True)
class RetrieverPool:
    generations: PgGenerations
    prepare_retriever: PrepareRetriever
    retrievers: dict[EmbedConfig, PooledRetriever] = field(default_factory=dict)
    replaced: list[PooledRetriever] = field(default_factory=list)
    prepare_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def acquire(self, name: str | None) -> AsyncIterator[tuple[str, Retriever]]:
        """Return name and retriever of the generation (None: live) while the context is open.

        Raises NotFound, InvalidRequest for a generation that is not built, TransientError with code
        NO_GENERATION, and the errors of `prepare_retriever`.
        """
        generation = await self.generations.resolve(name)
        if generation.state == "building":
            raise generation_not_built_error(generation.name)
        pooled = await self._get_or_prepare(generation)
        if pooled.retriever is None:
            assert pooled.error is not None
            raise pooled.error
        # Keeps `refresh` from closing it under a running query.
        pooled.user_count += 1
        try:
            yield generation.name, pooled.retriever
        finally:
            pooled.user_count -= 1

    async def run(self) -> None:
        """Prepare and close retrievers until cancelled."""
        while True:
            await asyncio.sleep(POLL_S if await self.refresh() else FIRST_POLL_S)

    async def refresh(self) -> bool:
        """Prepare and close retrievers once; returns whether any generation can be queried."""
        try:
            queryable = [
                generation
                for generation in await self.generations.fetch_undropped()
                if generation.state != "building"
            ]
        except TransientError:
            return False
        for generation in queryable:
            await self._get_or_prepare(generation)
        for pooled in [pooled for pooled in self.replaced if not pooled.user_count]:
            self.replaced.remove(pooled)
            await pooled.stack.aclose()
        used_configs = {generation.config.embed for generation in queryable}
        for embed_config, pooled in list(self.retrievers.items()):
            # Without a queryable generation none is closed.
            if used_configs and embed_config not in used_configs and not pooled.user_count:
                await self.retrievers.pop(embed_config).stack.aclose()
        return bool(queryable)

    async def close(self) -> None:
        for pooled in (*self.retrievers.values(), *self.replaced):
            await pooled.stack.aclose()

    def replace_all(self) -> None:
        """Replace every retriever by a new one. Running queries finish with the one they have."""
        self.replaced += self.retrievers.values()
        self.retrievers.clear()

    async def _get_or_prepare(self, generation: Generation) -> PooledRetriever:
        """Return the retriever, or prepare it, one at a time.

        Transient errors are retried on the next call.
        """
        if pooled := self._find_prepared(generation):
            return pooled
        async with self.prepare_lock:
            # Another caller may have prepared it while this one waited for the lock.
            if pooled := self._find_prepared(generation):
                return pooled
            pooled = PooledRetriever(AsyncExitStack())
            try:
                pooled.retriever = await pooled.stack.enter_async_context(
                    self.prepare_retriever(generation)
                )
            except AnabranchError as error:
                log.error(
                    "retriever_unavailable",
                    generation=generation.name,
                    code=error.code,
                    detail=error.detail,
                    remedy=error.remedy,
                )
                pooled.error = error
            self.retrievers[generation.config.embed] = pooled
            return pooled

    def _find_prepared(self, generation: Generation) -> PooledRetriever | None:
        pooled = self.retrievers.get(generation.config.embed)
        return None if pooled and isinstance(pooled.error, TransientError) else pooled


@asynccontextmanager
async def open_retriever_pool(
    generations: PgGenerations, prepare_retriever: PrepareRetriever
) -> AsyncIterator[RetrieverPool]:
    """Open the pool. If a generation is live, its retriever is prepared first, and its error
    raised.
    """
    pool = RetrieverPool(generations, prepare_retriever)
    try:
        if await generations.fetch_live() is not None:
            async with pool.acquire(None):
                pass  # prepared, or raised
        async with run_in_background(pool.run()):
            yield pool
    finally:
        await pool.close()


class OutdatedEmbedder:
    """Raise GenerationMismatch with code GENERATION_OUTDATED: this program's vectors cannot be
    compared with the generation's.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        embed = generation.config.embed
        self.model = embed.model
        self.dimension = embed.dimension
        self.state_dimension = embed.state_dimension
        self.fingerprint = embed.fingerprint

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        raise make_outdated_error(self._generation, ["embed"])

    async def embed_query(self, text: str) -> QueryEmbedding:
        raise make_outdated_error(self._generation, ["embed"])

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        raise make_outdated_error(self._generation, ["embed"])
