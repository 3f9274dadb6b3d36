"""The caches of one process that answers questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypedDict

import structlog

from anabranch.config.settings import CacheSettings
from retrieval.answer_cache import AnswerCache, OnCacheUse, QueryEmbeddingCache
from retrieval.timing import Clock
from schemas.ports.engines import Embedder
from sql.invalidation import PgIndexChanges
from sql.pool import Pool

log = structlog.get_logger(__name__)
INVALIDATION_INTERVAL_S = 1.0


class Caches(TypedDict, total=False):
    answer_cache: AnswerCache | None
    embedding_cache: QueryEmbeddingCache | None


@asynccontextmanager
async def open_caches(settings: CacheSettings, pool: Pool, embedder: Embedder, clock: Clock, on_cache_use: OnCacheUse) -> AsyncIterator[Caches]:
    """For one embedder. What no longer holds is let go of within a second."""
    questions = QueryEmbeddingCache(embedder, max_entries=settings.embeddings, on_use=on_cache_use) if settings.embeddings else None
    if not settings.answers:
        yield Caches(embedding_cache=questions)
        return
    answers = AnswerCache(PgIndexChanges(pool), clock, max_entries=settings.answers, ttl=timedelta(seconds=settings.seconds), on_use=on_cache_use)
    invalidation = asyncio.create_task(invalidate_periodically(answers))
    try:
        yield Caches(answer_cache=answers, embedding_cache=questions)
    finally:
        invalidation.cancel()
        await asyncio.gather(invalidation, return_exceptions=True)


async def invalidate_periodically(answers: AnswerCache) -> None:
    """Until cancelled."""
    while True:
        await asyncio.sleep(INVALIDATION_INTERVAL_S)
        try:
            await answers.evict_stale()
        except Exception:
            # Who stopped here would keep what is erased later.
            log.exception("answers that were remembered are let go of: they could not be compared with the tables")
