"""Temporary instance for measurements: real database, log, worker and retriever, in this process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anabranch.composition.retriever import prepare_retriever
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import DatabaseSettings, KafkaSettings, Settings, StorageSettings
from anabranch.process.database import open_database
from retrieval.retriever import Retriever
from schemas.errors import FatalError
from services.storage import Storage
from sql.pool import close_pool, open_pool
from sql.search import PgSearch


@dataclass(frozen=True, slots=True)
class EphemeralStack:
    """Running worker and retriever over a temporary data folder."""

    settings: Settings
    storage: Storage
    worker: Worker
    retriever: Retriever
    worker_task: asyncio.Task[None]

    def check_worker(self) -> None:
        """Raises the error that stopped the worker, or FatalError if it ended."""
        if self.worker_task.done():
            self.worker_task.result()
            raise FatalError("The worker ended unexpectedly.")


@asynccontextmanager
async def start_ephemeral_stack(
    settings: Settings, overrides: Overrides = NO_OVERRIDES
) -> AsyncIterator[EphemeralStack]:
    """Start a stack with the engines of the settings, but its own database, log and blobs."""
    async with AsyncExitStack() as exit_stack:
        folder = Path(
            exit_stack.enter_context(
                tempfile.TemporaryDirectory(prefix="anabranch-eval-", ignore_cleanup_errors=True)
            )
        )
        # Postgres refuses to run as root: the account that runs it instead must be able to enter.
        folder.chmod(0o711)
        stack_settings = settings.model_copy(
            update={
                "data_dir": folder,
                "database": DatabaseSettings(),
                "kafka": KafkaSettings(),
                "storage": StorageSettings(),
            }
        )
        dsn = await exit_stack.enter_async_context(open_database(stack_settings, is_ephemeral=True))
        worker = await exit_stack.enter_async_context(
            prepare_worker(stack_settings, dsn, overrides=overrides)
        )
        pool = await open_pool(dsn, size=stack_settings.database.api_pool, name="anabranch eval")
        exit_stack.push_async_callback(close_pool, pool)
        retriever = await exit_stack.enter_async_context(
            prepare_retriever(
                stack_settings,
                worker.storage,
                PgSearch(pool),
                worker.generation,
                overrides=overrides,
            )
        )
        worker_task = asyncio.create_task(worker.run())
        exit_stack.push_async_callback(_cancel, worker_task)
        yield EphemeralStack(stack_settings, worker.storage, worker, retriever, worker_task)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
