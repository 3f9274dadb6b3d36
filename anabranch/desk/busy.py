"""So many at once, a few more in the queue; the rest is told to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anabranch.process.metrics import Metrics
from schemas.errors import TransientError
from schemas.ports.search import Search, Snapshot
from schemas.principals import Readers

WAIT_S = 5.0
QUEUED_PER_SLOT = 64
"""About as many as are answered within the wait: a short rush is answered late, and not refused."""


class Gate:
    """Raises TransientError with code BUSY (HTTP 503 with Retry-After) when the queue is full or the wait too long."""

    def __init__(self, name: str, slots: int, metrics: Metrics) -> None:
        self.name, self.metrics = name, metrics
        self.slots = asyncio.Semaphore(slots)
        self.room = slots * QUEUED_PER_SLOT
        self.waiting = 0

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        await self._enter()
        try:
            yield
        finally:
            self.slots.release()

    async def _enter(self) -> None:
        if self.waiting >= self.room:
            raise self._busy()
        self.waiting += 1
        try:
            async with asyncio.timeout(WAIT_S):
                await self.slots.acquire()
        except TimeoutError:
            raise self._busy() from None
        finally:
            self.waiting -= 1

    def _busy(self) -> TransientError:
        self.metrics.refused_busy.labels(self.name).inc()
        return TransientError(f"too many {self.name} at once", code="BUSY", remedy="Ask again in a few seconds, or raise ANABRANCH_DATABASE__API_POOL.")


@dataclass(frozen=True, slots=True)
class GatedSearch:
    """`Search` through a gate: a question is counted while it holds a snapshot, and with it connections. It holds none while a model writes."""

    search: Search
    gate: Gate

    @asynccontextmanager
    async def snapshot(self, generation: str | None = None, names: Readers = None) -> AsyncIterator[Snapshot]:
        async with self.gate.entered(), self.search.snapshot(generation, names) as snapshot:
            yield snapshot
