"""A stage reads for as long as it is asked to, whatever its reading ends of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.errors import FatalError, LogUnavailable
from schemas.ports.log import OpenSink
from streams import hosting
from streams.hosting import Host


@dataclass
class Readings:
    """A subscriber whose readings end in these ways, one after the other; then it reads on."""

    ends: list[Callable[[], Awaitable[None]]]
    begun: int = 0
    reads_on: asyncio.Event = field(default_factory=asyncio.Event)

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Readings:
        return self

    async def run(self) -> None:
        self.begun += 1
        if self.begun <= len(self.ends):
            await self.ends[self.begun - 1]()
        else:
            self.reads_on.set()
            await asyncio.Event().wait()


async def broken_off() -> None:
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def returning() -> None:
    return None


async def unavailable() -> None:
    raise LogUnavailable("away")


async def fatal() -> None:
    raise FatalError("a bug")


def host(readings: Readings) -> Host:
    runner: Any = SimpleNamespace(publisher=SimpleNamespace(generation=None), stage=SimpleNamespace(name="probe", shared=True))
    return Host(runner, readings, "things", group="g")


async def test_reading_that_ends_by_itself_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "AGAIN_AFTER_S", 0)
    readings = Readings([broken_off, returning, unavailable])
    running = asyncio.create_task(host(readings).run())
    async with asyncio.timeout(10):
        await readings.reads_on.wait()
    assert readings.begun == 4
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_what_a_stage_must_stop_for_is_raised() -> None:
    readings = Readings([fatal])
    with pytest.raises(FatalError):
        await host(readings).run()
    assert readings.begun == 1
