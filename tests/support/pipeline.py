"""Run the whole pipeline in this process with engines that cost almost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import STAGES
from schemas.events import (
    Content,
    DocumentReceived,
    DocumentWithdrawn,
    EntityMerged,
    EntityRetyped,
    build_root_event,
)
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from services.instrumentation.metrics import Metrics
from services.monitoring.lag_diagnosis import explain_lags
from sql.database import Pool
from sql.index.generations import GenerationBuild, PgGenerationBuilds
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.fakes.null_embedder import NullEmbedder
from tests.support.eventually import eventually
from tests.support.simulated_pipeline import LineParser

TIMEOUT_S = 90.0
MAINTENANCE_S = 20.0
POOL_SIZE = 4
"""Each connection plans its statements itself: with ten, a rebuild takes 40 % more CPU."""
EVENT_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def null_overrides() -> Overrides:
    return Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=8))


def make_event(name: str, text: str | None) -> DocumentReceived | DocumentWithdrawn:
    return (
        DocumentReceived(external_id=name, content=Content(text=text))
        if text is not None
        else DocumentWithdrawn(external_id=name)
    )


@dataclass(slots=True)
class Pipeline:
    worker: Worker
    running: asyncio.Task[None]
    metrics: Metrics
    n_pushed: int = 0
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> Pool:
        return self.worker.storage.pool

    async def push(self, texts: Mapping[str, str | None]) -> None:
        """Push each text under its external id; None withdraws."""
        records = []
        for name, text in texts.items():
            self.n_pushed += 1
            records.append(
                await build_raw_record(
                    make_event(name, text),
                    f"{name}-{self.n_pushed}",
                    source="test",
                    time=EVENT_TIME,
                    codec=Codec(),
                )
            )
        await self.worker.storage.log.append(records)

    async def push_and_wait(self, texts: Mapping[str, str | None]) -> None:
        """Push and wait until everything is settled."""
        await self.push(texts)
        await self.wait_until_idle()

    async def push_and_wait_until_visible(self, texts: Mapping[str, str]) -> None:
        """Push and wait until they are searchable."""
        await self.push(texts)
        visible_count = (
            "select count(*) from live_generation l join visible v on v.generation = l.name "
            "join documents d on d.id = v.document_id where external_id = any($1)"
        )

        async def are_visible() -> bool:
            return bool(await self.pool.fetchval(visible_count, list(texts)) == len(texts))

        await self.wait_for(are_visible)

    async def correct_entities(self) -> None:
        """Merge two entities and change the type of a third, and wait until it is settled."""
        rows = await self.pool.fetch(
            "select distinct entity_id from entity_mentions order by 1 limit 3"
        )
        part, whole, other = (row["entity_id"] for row in rows)
        storage = self.worker.storage
        for event in (
            EntityMerged(tenant="default", entity_id=part, into=whole, into_type="LOC"),
            EntityRetyped(tenant="default", entity_id=other, type="BIRD"),
        ):
            root = build_root_event(event, uuid4(), "anabranch/entities", utc_now)
            await storage.log.append(
                [await storage.codec.encode(root, CONTROL, str(event.entity_id))]
            )
        await self.wait_until_idle()
        assert await self.pool.fetchval(
            "select count(distinct entity_id) from entity_mentions where entity_type is not null"
        )

    async def wait_until_idle(self) -> None:
        """Wait until every stage has read to the end of the log and committed."""
        storage = self.worker.storage

        async def count_pending() -> list[int]:
            readers = [reader for reader, _ in self.worker.consumers.assignment_tasks.values()]
            return [
                await storage.log.count_pending(reader.group, reader.topic) for reader in readers
            ]

        for _ in range(2):
            await self.wait_for(
                count_pending, lambda pending: len(pending) >= len(STAGES) and not any(pending)
            )

    async def wait_for(
        self, probe: Callable[[], Awaitable[Any]], accept: Callable[[Any], object] = bool
    ) -> Any:
        """Wait for a value of the probe; fail at once if the worker ends."""

        async def probe_running() -> Any:
            if self.running.done():
                self.running.result()
            return await probe()

        return await eventually(probe_running, accept, what=probe.__qualname__)

    async def fetch_build(self, name: str) -> GenerationBuild | None:
        return await PgGenerationBuilds(self.pool).get(name)

    async def wait_for_state(self, name: str, *states: str) -> GenerationBuild:
        """Wait until the generation is in one of the states; fail if its build fails."""

        async def has_state() -> GenerationBuild | None:
            build = await self.fetch_build(name)
            assert build is None or build.error is None, build.error
            return build if build is not None and build.generation.state in states else None

        found = await self.wait_for(has_state)
        assert isinstance(found, GenerationBuild)
        return found

    async def fetch_lag(self, stage: str) -> dict[str, Any]:
        """Fetch the reported lag of the stage."""
        lines, _ = await explain_lags(self.worker.storage)
        return next(one for one in lines if one["stage"] == stage)

    def count_engine_calls(self) -> dict[str, float]:
        return {
            sample.labels["engine"]: sample.value
            for metric in self.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "anabranch_engine_calls_total"
        }


@asynccontextmanager
async def run_pipeline(
    folder: Path,
    dsn: str,
    overrides: Overrides | None = None,
    settings: Settings | None = None,
    maintenance_s: float = MAINTENANCE_S,
    **more: Any,
) -> AsyncIterator[Pipeline]:
    """`maintenance_s` is how often deltas are folded and indexes looked after."""
    metrics = Metrics("test")
    settings = settings or Settings(data_dir=folder)
    database = settings.database.model_copy(update={"worker_pool": POOL_SIZE})
    async with prepare_worker(
        settings.model_copy(update={"database": database}),
        dsn,
        overrides=overrides or null_overrides(),
        instrumentation=metrics,
        **more,
    ) as prepared:
        worker = replace(
            prepared, maintenance=replace(prepared.maintenance, interval_s=maintenance_s)
        )
        running = asyncio.create_task(worker.run())
        try:
            yield Pipeline(worker, running, metrics)
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
