"""A log of which the tables know places, as Kafka is, and that other workers may read at the same moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from anabranch.composition.overrides import Overrides
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.settings import Settings
from sql.pool import Pool
from sql.reached import PgReached
from streams.memory import MemoryLog

TOPICS = ("raw", "accepted", "ocr_done", "chunked", "entities", "embedded", "control", "queries", "feedback", "dead_letters")
Work = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """As when no other worker is there."""


class SharedLog(MemoryLog):
    """Of which other workers do their `work` before it answers; they note before they acknowledge."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[tuple[str, str], dict[int, int]] = {}
        self.work: Work = nothing

    async def acknowledged(self, group: str, topic: str) -> dict[int, int]:
        await self.work()
        return self.places.get((group, topic), {})


async def acknowledge(pool: Pool, log: SharedLog, reading: tuple[str, str], offset: int) -> None:
    await PgReached(pool).note(*reading, {0: offset})
    log.places[reading] = {0: offset}


@asynccontextmanager
async def storage_over(log: SharedLog, folder: Path, dsn: str) -> AsyncIterator[Storage]:
    async with prepare_storage(Settings(data_dir=folder), dsn, pool_size=3, name="test", overrides=Overrides()) as prepared:
        for topic in TOPICS:
            await log.create_topics({topic: 1}, retention_ms={})
        yield replace(prepared, log=log)
