"""Caches of a process that serves queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypedDict

import structlog

from retrieval.answer_cache import AnswerCache
from retrieval.query_context import OnCacheUse, QueryEmbeddingCache
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
    embedding_cache = (
        QueryEmbeddingCache(embedder, max_entries=embedding_entries, on_use=on_cache_use)
        if embedding_entries
        else None
    )
    if not answer_entries:
        yield Caches(embedding_cache=embedding_cache)
        return
    ttl = timedelta(seconds=answer_ttl_s)
    answers = AnswerCache(
        PgIndexChanges(pool), clock, max_entries=answer_entries, ttl=ttl, on_use=on_cache_use
    )
    invalidation = asyncio.create_task(invalidate_periodically(answers))
    try:
        yield Caches(answer_cache=answers, embedding_cache=embedding_cache)
    finally:
        invalidation.cancel()
        await asyncio.gather(invalidation, return_exceptions=True)


async def invalidate_periodically(answers: AnswerCache) -> None:
    """Evict stale answers until cancelled."""
    while True:
        await asyncio.sleep(INVALIDATION_INTERVAL_S)
        try:
            await answers.evict_stale()
        except Exception:
            # Keep running: a cache that stops evicting would serve documents that are erased later.
            log.exception("answer_cache_eviction_failed")
