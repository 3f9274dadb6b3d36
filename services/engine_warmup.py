"""Warm up engines before the first document or query needs them."""

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
    """Warm up the engines while the context is open.

    One process of a data folder at a time: the others find the results in the models folder.
    """
    task = asyncio.create_task(
        _warm_engines([engine for engine in engines if isinstance(engine, Warmable)], folder)
    )
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
                log.warning("engine_warmup_failed", code=error.code, detail=error.detail)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
