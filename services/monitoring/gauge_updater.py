"""Update the gauges of a worker periodically."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog
from prometheus_client import Gauge

from schemas.errors import TransientError
from schemas.timestamps import utc_now
from services.instrumentation.metrics import Metrics
from services.monitoring.lag_diagnosis import fetch_stage_lags
from services.storage import Storage
from sql.catalog.documents import PgDocuments
from sql.catalog.listings import PgListings
from sql.index.generations import PgGenerations
from sql.operations.monitoring import fetch_received_times

log = structlog.get_logger(__name__)
INTERVAL_S = 15.0
PAUSE_FACTOR = 20
"""Pause after an update, in durations of it: at most a twentieth of the time is for counting."""


@dataclass(frozen=True, slots=True)
class GaugeUpdater:
    storage: Storage
    metrics: Metrics
    interval_s: float = INTERVAL_S
    clock: Callable[[], datetime] = utc_now

    async def run(self) -> None:
        """Run until cancelled. Gauges keep their last value while the database is unavailable."""
        clock = asyncio.get_running_loop().time
        while True:
            started_at = clock()
            try:
                await self.update()
            except TransientError as error:
                log.warning("gauge_update_postponed", code=error.code, detail=error.detail)
            await asyncio.sleep(max(self.interval_s, PAUSE_FACTOR * (clock() - started_at)))

    async def update(self) -> None:
        for line in await fetch_stage_lags(self.storage):
            self.metrics.consumer_lag.labels(line["stage"]).set(line["lag"])
            oldest_at = (
                await self.storage.log.fetch_oldest_pending_time(line["group"], line["topic"])
                if line["lag"]
                else None
            )
            # The clocks of the log and of this process may differ.
            age_s = max(0.0, (self.clock() - oldest_at).total_seconds()) if oldest_at else 0.0
            self.metrics.consumer_lag_seconds.labels(line["stage"]).set(age_s)
        pool = self.storage.pool
        _replace_samples(
            self.metrics.dead_letters_open,
            {
                (stage,): number
                for stage, number in (await PgListings(pool).count_dead_letters(None)).items()
            },
        )
        _replace_samples(
            self.metrics.generations,
            {
                (generation.name, generation.state): 1
                for generation in await PgGenerations(pool).fetch_undropped()
            },
        )
        _replace_samples(
            self.metrics.documents,
            {
                (state,): number
                for state, number in (await PgDocuments(pool).fetch_counts(None)).items()
            },
        )
        await self.metrics.ingest_latency.measure(partial(fetch_received_times, pool))


def _replace_samples(gauge: Gauge, samples: Mapping[tuple[str, ...], float]) -> None:
    """Set the samples and drop all others."""
    # A label that no longer occurs would keep its last value.
    gauge.clear()
    for labels, number in samples.items():
        gauge.labels(*labels).set(number)
