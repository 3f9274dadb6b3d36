"""Run worker processes over one log and database, controlled by the test's process."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from anabranch.composition.sources import build_reindex_service
from anabranch.composition.storage import prepare_storage
from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from anabranch.identity.approvals import approve
from processors import STAGES
from schemas.timestamps import utc_now
from services.generations.decisions import GenerationDecisions
from services.generations.reindex import ReindexService
from services.generations.stage_assignments import assign_stages
from services.replay.service import ReplayService
from services.storage import Storage
from sql.database import Pool
from sql.index.generations import GenerationBuild, PgGenerationBuilds, PgGenerations
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.support.cluster import WorkerProcess
from tests.support.eventually import eventually
from tests.support.failing_worker import STOPPED_ANSWERING, FailingWorkerOrders, run_failing_worker
from tests.support.forked_process import fork_process
from tests.support.pipeline import EVENT_TIME, make_event
from tests.support.reindex_cases import APPROVED_SETTINGS, OVERRIDES

SESSION_TIMEOUT_S = 6
"""After that long Kafka misses a worker that was killed."""


@dataclass
class WorkerGroup:
    settings: Settings
    storage: Storage
    setting_overrides: Sequence[str]
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def pool(self) -> Pool:
        return self.storage.pool

    async def start_worker(self, **frailty: Any) -> WorkerProcess:
        """Start a worker and wait until it runs, or until one that may die at once has ended."""
        folder, number = self.settings.data_dir.parent, len(self.workers) + 1
        notes, errors = folder / f"worker-{number}.notes", folder / f"worker-{number}.log"
        orders = FailingWorkerOrders(self.storage.dsn, str(notes), **frailty)
        self.workers.append(
            WorkerProcess(
                fork_process(
                    run_failing_worker,
                    orders,
                    log=errors,
                    environment=to_environment(self.setting_overrides),
                ),
                notes,
                errors,
            )
        )
        worker = self.workers[-1]
        ended = "deadly" in frailty
        await eventually(
            _to_async(lambda: (ended and worker.process.poll() is not None) or worker.is_ready)
        )
        return worker

    async def push_texts(self, texts: Mapping[str, str | None]) -> None:
        records = [
            await build_raw_record(
                make_event(name, text),
                f"{name}-{uuid4()}",
                source="test",
                time=EVENT_TIME,
                codec=Codec(),
            )
            for name, text in texts.items()
        ]
        await self.storage.log.append(records)

    async def wait_until_idle(self) -> None:
        """Wait until no stage has records left to read."""
        for _ in range(2):
            await eventually(self._is_idle)

    async def _is_idle(self) -> bool:
        found = assign_stages(await PgGenerations(self.pool).fetch_undropped(), STAGES)
        return bool(found) and not sum(
            [await self.storage.log.count_pending(reader.group, reader.topic) for reader in found]
        )

    async def wait_for_state(self, name: str, state: str) -> GenerationBuild:
        async def there() -> GenerationBuild | None:
            build = await PgGenerationBuilds(self.pool).get(name)
            assert build is None or build.error is None, build.error
            return build if build is not None and build.generation.state == state else None

        build = await eventually(there)
        assert isinstance(build, GenerationBuild)
        return build

    @property
    def decisions(self) -> GenerationDecisions:
        return GenerationDecisions(self.storage.log, self.storage.codec)

    @property
    def reindex_service(self) -> ReindexService:
        approve(self.settings.data_dir, "settings", APPROVED_SETTINGS)
        return build_reindex_service(self.settings, self.storage, self.decisions, OVERRIDES)

    @property
    def replay_service(self) -> ReplayService:
        return ReplayService(self.storage, utc_now, uuid4)


def make_worker_settings(dsn: str, log_settings: Sequence[str], data_dir: Path) -> list[str]:
    """Make the settings of the workers and of the process that observes them."""
    kafka = [*log_settings, f"kafka.session_timeout_s={SESSION_TIMEOUT_S}"] if log_settings else []
    return [
        f"data_dir={data_dir}",
        f"database.url={dsn}",
        "database.worker_pool=4",
        "logging.level=error",
        *kafka,
    ]


@asynccontextmanager
async def run_worker_group(dsn: str, sets: Sequence[str]) -> AsyncIterator[WorkerGroup]:
    """`sets` name the log and the data folder. None of the workers outlives the context."""
    settings = load_settings(sets=sets)
    settings.data_dir.mkdir(parents=True)
    async with prepare_storage(settings, dsn, pool_size=6, name="test") as storage:
        house = WorkerGroup(settings, storage, sets)
        try:
            yield house
        finally:
            for worker in house.workers:
                worker.stop(signal.SIGKILL)


@pytest.fixture
async def worker_group(
    database: str, log_settings: list[str], tmp_path: Path
) -> AsyncIterator[WorkerGroup]:
    async with run_worker_group(
        database, make_worker_settings(database, log_settings, tmp_path / "data")
    ) as found:
        yield found


async def kill_when_stalled(
    worker: WorkerProcess, answered: Callable[[], Awaitable[int]]
) -> list[str]:
    """Kill the worker once it stalls and its results are stored; return those results."""

    async def kept() -> bool:
        return STOPPED_ANSWERING in worker.note_lines and await answered() == len(
            list_embedded_words(worker)
        )

    await eventually(kept)
    worker.stop(signal.SIGKILL)
    return list_embedded_words(worker)


def list_embedded_words(worker: WorkerProcess, dimension: int = 24) -> list[str]:
    """Return the last words of the texts of this dimension that it has embedded."""
    return [line.split()[1] for line in worker.embedded_words if line.startswith(f"{dimension} ")]


def _to_async(said: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return said()

    return asked


def to_environment(sets: Sequence[str]) -> dict[str, str]:
    named = (one.partition("=") for one in sets)
    return {f"ANABRANCH_{name.upper().replace('.', '__')}": value for name, _, value in named}
