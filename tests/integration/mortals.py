"""Worker processes over one log and one database, watched and told from the test's own process, which works on nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from anabranch.approvals import approve
from anabranch.composition.overrides import now
from anabranch.composition.readers import readers
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.desk.decisions import Decisions
from anabranch.desk.rebuilding import Reindexing
from anabranch.desk.replays import ReplayDesk
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from processors import STAGES
from sql.builds import Build, PgBuilds
from sql.generations import PgGenerations
from sql.pool import Pool
from streams.codec import Codec
from streams.submission import submission
from tests.forked import forked
from tests.integration.cluster import Worker
from tests.integration.mortal_worker import SILENT, Orders, run
from tests.integration.test_reindex import APPROVED, OVERRIDES
from tests.pipeline import PATIENCE_S, TIME, change

SESSION_S = 6
"""After that long Kafka misses a worker that was killed."""


@dataclass
class House:
    settings: Settings
    storage: Storage
    sets: Sequence[str]
    workers: list[Worker] = field(default_factory=list)

    @property
    def pool(self) -> Pool:
        return self.storage.pool

    async def start(self, **frailty: Any) -> Worker:
        """One that is at work."""
        folder, number = self.settings.data_dir.parent, len(self.workers) + 1
        notes, errors = folder / f"worker-{number}.notes", folder / f"worker-{number}.log"
        orders = Orders(self.storage.dsn, str(notes), **frailty)
        self.workers.append(Worker(forked(run, orders, log=errors, environment=environment(self.sets)), notes, errors))
        await until(_true(lambda: self.workers[-1].ready))
        return self.workers[-1]

    async def push(self, texts: Mapping[str, str | None]) -> None:
        records = [await submission(change(name, text), f"{name}-{uuid4()}", source="test", time=TIME, codec=Codec()) for name, text in texts.items()]
        await self.storage.log.append(records)

    async def quiet(self) -> None:
        """Nothing that is in the log is still to be read by anyone."""
        for _ in range(2):
            await until(self._idle)

    async def _idle(self) -> bool:
        found = readers(await PgGenerations(self.pool).undropped(), STAGES)
        return bool(found) and not sum([await self.storage.waiting(reader.group, reader.topic) for reader in found])

    async def reaches(self, name: str, state: str) -> Build:
        async def there() -> Build | None:
            build = await PgBuilds(self.pool).get(name)
            assert build is None or build.error is None, build.error
            return build if build is not None and build.generation.state == state else None

        build = await until(there)
        assert isinstance(build, Build)
        return build

    @property
    def decisions(self) -> Decisions:
        return Decisions(self.storage.log, self.storage.codec)

    @property
    def reindexing(self) -> Reindexing:
        approve(self.settings.data_dir, "settings", APPROVED)
        return Reindexing(self.settings, self.storage, self.decisions, OVERRIDES)

    @property
    def desk(self) -> ReplayDesk:
        return ReplayDesk(self.storage, now, uuid4)


def settings_for(dsn: str, log_sets: Sequence[str], data_dir: Path) -> list[str]:
    """Of the workers and of whoever watches them."""
    kafka = [*log_sets, f"kafka.session_timeout_s={SESSION_S}"] if log_sets else []
    return [f"data_dir={data_dir}", f"database.url={dsn}", "database.worker_pool=6", "logging.level=error", *kafka]


@asynccontextmanager
async def housed(dsn: str, sets: Sequence[str]) -> AsyncIterator[House]:
    """`sets` name the log and the data folder. None of the workers outlives the context."""
    settings = load_settings(sets=sets)
    settings.data_dir.mkdir(parents=True)
    async with prepare_storage(settings, dsn, pool_size=6, name="test") as storage:
        house = House(settings, storage, sets)
        try:
            yield house
        finally:
            for worker in house.workers:
                worker.end(signal.SIGKILL)


@pytest.fixture
async def house(database: str, log_sets: list[str], tmp_path: Path) -> AsyncIterator[House]:
    async with housed(database, settings_for(database, log_sets, tmp_path / "data")) as found:
        yield found


async def killed_when_silent(worker: Worker, answered: Callable[[], Awaitable[int]]) -> list[str]:
    """Killed when it answers no more and all that it has answered is kept; what that was."""

    async def kept() -> bool:
        return SILENT in worker.noted and await answered() == len(spoken(worker))

    await until(kept)
    worker.end(signal.SIGKILL)
    return spoken(worker)


def spoken(worker: Worker, dimension: int = 24) -> list[str]:
    """The last words of the texts of this dimension that it has embedded."""
    return [line.split()[1] for line in worker.embedded if line.startswith(f"{dimension} ")]


async def until(true: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await true()):
            await asyncio.sleep(0.05)
    return found


def _true(said: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return said()

    return asked


def environment(sets: Sequence[str]) -> dict[str, str]:
    named = (one.partition("=") for one in sets)
    return {f"ANABRANCH_{name.upper().replace('.', '__')}": value for name, _, value in named}
