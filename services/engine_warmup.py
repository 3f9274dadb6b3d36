"""Loading what is slow to load before the first document or question needs it."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import structlog

from schemas.errors import AnabranchError

log = structlog.get_logger(__name__)
LOCK_FILE = "warming.lock"


@runtime_checkable
class Warmable(Protocol):
    async def warm(self) -> None: ...


@asynccontextmanager
async def warm_in_background(engines: Iterable[object], folder: Path) -> AsyncIterator[None]:
    """Beside whatever runs in the context. One process of a data folder at a time, so that what is computed once is computed once."""
    task = asyncio.create_task(_warm_engines([engine for engine in engines if isinstance(engine, Warmable)], folder))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _warm_engines(engines: Iterable[Warmable], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a") as lock:
        while not _try_lock(lock.fileno()):
            await asyncio.sleep(0.1)
        for engine in engines:
            try:
                await engine.warm()
            except AnabranchError as error:
                log.warning("an engine is not ready yet", code=error.code, detail=error.detail)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
