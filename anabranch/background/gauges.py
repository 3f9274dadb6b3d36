"""What a worker's metrics say of the whole, looked up from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from prometheus_client import Gauge

from anabranch.background.lag import oldest_in, stage_lags
from anabranch.composition.overrides import now
from anabranch.composition.storage import Storage
from anabranch.process.metrics import Metrics
from schemas.errors import TransientError
from sql.ages import received_at
from sql.documents import PgDocuments
from sql.generations import PgGenerations
from sql.records import PgRecords

log = structlog.get_logger(__name__)
EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Gauges:
    storage: Storage
    metrics: Metrics
    every_s: float = EVERY_S
    clock: Callable[[], datetime] = now

    async def run(self) -> None:
        """Until cancelled. What cannot be looked up now keeps its last value."""
        while True:
            try:
                await self.once()
            except TransientError as error:
                log.warning("gauges wait", code=error.code, detail=error.detail)
            await asyncio.sleep(self.every_s)

    async def _age(self, line: Mapping[str, Any]) -> float:
        oldest = await oldest_in(self.storage, line["group"], line["topic"])
        return max(0.0, (self.clock() - oldest).total_seconds()) if oldest else 0.0

    async def once(self) -> None:
        for line in await stage_lags(self.storage):
            self.metrics.consumer_lag.labels(line["stage"]).set(line["lag"])
            self.metrics.consumer_lag_seconds.labels(line["stage"]).set(await self._age(line) if line["lag"] else 0)
        pool = self.storage.pool
        _show(self.metrics.dead_letters_held, {(stage,): number for stage, number in (await PgRecords(pool).dead_letter_counts(None)).items()})
        _show(self.metrics.generations, {(generation.name, generation.state): 1 for generation in await PgGenerations(pool).undropped()})
        _show(self.metrics.documents, {(state,): number for state, number in (await PgDocuments(pool).counts(None)).items()})
        await self.metrics.arrivals.measure(partial(received_at, pool))


def _show(gauge: Gauge, numbers: Mapping[tuple[str, ...], float]) -> None:
    """What is not among them any more goes."""
    gauge.clear()
    for labels, number in numbers.items():
        gauge.labels(*labels).set(number)
