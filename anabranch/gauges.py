"""What a worker's metrics say of the whole, looked up from time to time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from anabranch.composition.storage import Storage
from anabranch.lag import stage_lags
from anabranch.metrics import Metrics
from schemas.errors import TransientError
from sql.documents import PgDocuments

log = structlog.get_logger(__name__)
EVERY_S = 15.0
TENANT = "default"


@dataclass(frozen=True, slots=True)
class Gauges:
    storage: Storage
    metrics: Metrics
    every_s: float = EVERY_S

    async def run(self) -> None:
        """Until cancelled. What cannot be looked up now keeps its last value."""
        while True:
            try:
                await self.once()
            except TransientError as error:
                log.warning("gauges wait", code=error.code, detail=error.detail)
            await asyncio.sleep(self.every_s)

    async def once(self) -> None:
        for line in await stage_lags(self.storage):
            self.metrics.consumer_lag.labels(line["stage"]).set(line["lag"])
        for state, number in (await PgDocuments(self.storage.pool).counts(TENANT)).items():
            self.metrics.documents.labels(state).set(number)
