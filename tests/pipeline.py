"""The whole pipeline in this process, with engines that cost next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anabranch.background.stuck import explained_lags
from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.process.metrics import Metrics
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from engines.embed.null import NullEmbedder
from processors import STAGES
from schemas.events import Content, DocumentReceived, DocumentWithdrawn
from sql.builds import Build, PgBuilds
from sql.pool import Pool
from streams.codec import Codec
from streams.submission import submission
from tests.property.world import LineParser

PATIENCE_S = 90.0
MAINTENANCE_S = 20.0
TIME = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path, database: str, log_sets: list[str]) -> Settings:
    """Which name the database, for what looks at it from outside."""
    return load_settings(data_dir=tmp_path, sets=[f"database.url={database}", *log_sets])


def null_overrides() -> Overrides:
    return Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=8))


def change(name: str, text: str | None) -> DocumentReceived | DocumentWithdrawn:
    return DocumentReceived(external_id=name, content=Content(text=text)) if text is not None else DocumentWithdrawn(external_id=name)


@dataclass(slots=True)
class Pipeline:
    worker: Worker
    running: asyncio.Task[None]
    metrics: Metrics
    number: int = 0
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> Pool:
        return self.worker.storage.pool

    async def push(self, texts: Mapping[str, str | None]) -> None:
        """Each under its external id; None withdraws."""
        records = []
        for name, text in texts.items():
            self.number += 1
            records.append(await submission(change(name, text), f"{name}-{self.number}", source="test", time=TIME, codec=Codec()))
        await self.worker.storage.log.append(records)

    async def fill(self, texts: Mapping[str, str | None]) -> None:
        """Push and wait until everything is settled."""
        await self.push(texts)
        await self.quiet()

    async def fill_live(self, texts: Mapping[str, str]) -> None:
        """Push and wait until they are searchable."""
        await self.push(texts)
        shown = "select count(*) from live_generation l join visible v on v.generation = l.name join documents d on d.id = v.document_id where external_id = any($1)"

        async def there() -> bool:
            return bool(await self.pool.fetchval(shown, list(texts)) == len(texts))

        await self.until(there)

    async def quiet(self) -> None:
        """Every reader has finished everything that is in the log, and has said so."""
        storage = self.worker.storage

        async def idle() -> bool:
            readers = [reader for reader, _ in self.worker.hosting.running.values()]
            return len(readers) >= len(STAGES) and not sum([await storage.waiting(reader.group, reader.topic) for reader in readers])

        for _ in range(2):
            await self.until(idle)

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await condition()):
                if self.running.done():
                    self.running.result()
                await asyncio.sleep(0.05)
        return found

    async def build(self, name: str) -> Build | None:
        return await PgBuilds(self.pool).get(name)

    async def reaches(self, name: str, *states: str) -> Build:
        """Wait until the generation is in one of these states; fails where its build does."""

        async def there() -> Build | None:
            build = await self.build(name)
            assert build is None or build.error is None, build.error
            return build if build is not None and build.generation.state in states else None

        found = await self.until(there)
        assert isinstance(found, Build)
        return found

    async def line(self, stage: str) -> dict[str, Any]:
        """What is told of how far the stage has read."""
        lines, _ = await explained_lags(self.worker.storage)
        return next(one for one in lines if one["stage"] == stage)

    def engine_calls(self) -> dict[str, float]:
        return {
            sample.labels["engine"]: sample.value
            for metric in self.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "anabranch_engine_calls_total"
        }


@asynccontextmanager
async def pipeline(
    folder: Path, dsn: str, overrides: Overrides | None = None, settings: Settings | None = None, maintenance_s: float = MAINTENANCE_S, **more: Any
) -> AsyncIterator[Pipeline]:
    """`maintenance_s` is how often deltas are folded and indexes looked after."""
    metrics = Metrics("test")
    async with prepare_worker(settings or Settings(data_dir=folder), dsn, overrides=overrides or null_overrides(), observer=metrics, **more) as prepared:
        worker = replace(prepared, maintenance=replace(prepared.maintenance, every_s=maintenance_s))
        running = asyncio.create_task(worker.run())
        try:
            yield Pipeline(worker, running, metrics)
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
