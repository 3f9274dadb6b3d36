"""A log with stored offsets, like Kafka, that other workers may read at the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from anabranch.composition.storage import prepare_storage
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import TOPICS
from services.storage import Storage
from sql.database import Pool
from sql.log.offset_store import PgOffsetStore
from tests.fakes.memory_log import MemoryLog

ConcurrentWork = Callable[[], Awaitable[None]]


async def do_nothing() -> None:
    """Do nothing, as when there is no other worker."""


class SharedLog(MemoryLog):
    """Run the `work` of other workers before each answer.

    The workers record their results before they acknowledge.
    """

    def __init__(self) -> None:
        super().__init__()
        self.offsets: dict[tuple[str, str], dict[int, int]] = {}
        self.concurrent_work: ConcurrentWork = do_nothing

    async def fetch_committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        await self.concurrent_work()
        return self.offsets.get((group, topic), {})


async def acknowledge_offset(
    pool: Pool, log: SharedLog, group_and_topic: tuple[str, str], offset: int
) -> None:
    await PgOffsetStore(pool).store_offsets(*group_and_topic, {0: offset})
    log.offsets[group_and_topic] = {0: offset}


@asynccontextmanager
async def open_storage(log: SharedLog, folder: Path, dsn: str) -> AsyncIterator[Storage]:
    async with prepare_storage(
        Settings(data_dir=folder), dsn, pool_size=3, name="test", overrides=Overrides()
    ) as prepared:
        for topic in TOPICS:
            await log.create_topics({topic: 1}, retention_ms={})
        yield replace(prepared, log=log)
