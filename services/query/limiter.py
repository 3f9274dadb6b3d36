"""Limit concurrent queries; queue a few more, and refuse the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from schemas.errors import TransientError
from schemas.ports.search import IndexSnapshot, SearchIndex
from schemas.principals import ReaderScope
from services.instrumentation.metrics import Metrics

MAX_WAIT_S = 5.0
QUEUED_PER_SLOT = 64
"""About as many as finish within MAX_WAIT_S, so that a short burst is served late but not refused."""


class ConcurrencyLimiter:
    """Raises TransientError with code BUSY (HTTP 503 with Retry-After) if the queue is full or the
    wait too long.
    """

    def __init__(self, name: str, slots: int, metrics: Metrics) -> None:
        self.name, self.metrics = name, metrics
        self.slots = asyncio.Semaphore(slots)
        self.queue_limit = slots * QUEUED_PER_SLOT
        self.waiting_count = 0

    @asynccontextmanager
    async def acquire_slot(self) -> AsyncIterator[None]:
        await self._acquire()
        try:
            yield
        finally:
            self.slots.release()

    async def _acquire(self) -> None:
        if self.waiting_count >= self.queue_limit:
            raise self._build_busy_error()
        self.waiting_count += 1
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self.slots.acquire()
        except TimeoutError:
            raise self._build_busy_error() from None
        finally:
            self.waiting_count -= 1

    def _build_busy_error(self) -> TransientError:
        self.metrics.refused_busy.labels(self.name).inc()
        return TransientError(
            f"Too many concurrent {self.name}.",
            code="BUSY",
            remedy="Retry in a few seconds, or raise ANABRANCH_DATABASE__API_POOL.",
        )


@dataclass(frozen=True, slots=True)
class LimitedSearch:
    """`SearchIndex` with a limit on open snapshots, which hold connections.

    A query holds none while a model generates.
    """

    search: SearchIndex
    limiter: ConcurrencyLimiter

    @asynccontextmanager
    async def open_snapshot(
        self, generation: str | None = None, readers: ReaderScope = None
    ) -> AsyncIterator[IndexSnapshot]:
        async with (
            self.limiter.acquire_slot(),
            self.search.open_snapshot(generation, readers) as snapshot,
        ):
            yield snapshot
