"""A data folder with everything real in it that is gone afterwards, in this process: for measuring."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anabranch.composition.overrides import NONE, Overrides
from anabranch.composition.questions import prepare_questions
from anabranch.composition.storage import Storage
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.process.database import database
from anabranch.settings import DatabaseSettings, KafkaSettings, Settings, StorageSettings
from retrieval.pipeline import Retriever
from schemas.errors import FatalError
from sql.pool import close_pool, open_pool
from sql.search import PgSearch


@dataclass(frozen=True, slots=True)
class Trial:
    """A worker at work and someone to ask."""

    settings: Settings
    storage: Storage
    worker: Worker
    retriever: Retriever
    working: asyncio.Task[None]

    def check(self) -> None:
        """Raises what stopped the worker."""
        if self.working.done():
            self.working.result()
            raise FatalError("the worker ended by itself")


@asynccontextmanager
async def trial(settings: Settings, overrides: Overrides = NONE) -> AsyncIterator[Trial]:
    """Database, log and blobs that the settings name are left alone; engines are theirs."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-trial-", ignore_cleanup_errors=True)))
        # The account that runs Postgres for root must be able to enter.
        folder.chmod(0o711)
        own = settings.model_copy(update={"data_dir": folder, "database": DatabaseSettings(), "kafka": KafkaSettings(), "storage": StorageSettings()})
        dsn = await stack.enter_async_context(database(own, throwaway=True))
        worker = await stack.enter_async_context(prepare_worker(own, dsn, overrides=overrides))
        pool = await open_pool(dsn, size=own.database.api_pool, name="anabranch trial")
        stack.push_async_callback(close_pool, pool)
        retriever = await stack.enter_async_context(prepare_questions(own, worker.storage, PgSearch(pool), worker.generation, overrides=overrides))
        working = asyncio.create_task(worker.run())
        stack.push_async_callback(_ended, [working])
        yield Trial(own, worker.storage, worker, retriever, working)


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
