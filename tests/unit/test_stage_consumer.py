"""A stage consumer restarts its reading, however that ends, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.errors import FatalError, LogUnavailable
from schemas.ports.log import OpenSink
from streams import stage_consumer
from streams.stage_consumer import StageConsumer


@dataclass
class ScriptedSubscription:
    """A subscriber whose reads end in the given ways, in turn; the last one continues."""

    outcomes: list[Callable[[], Awaitable[None]]]
    run_count: int = 0
    reading: asyncio.Event = field(default_factory=asyncio.Event)

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> ScriptedSubscription:
        return self

    async def run(self) -> None:
        self.run_count += 1
        if self.run_count <= len(self.outcomes):
            await self.outcomes[self.run_count - 1]()
        else:
            self.reading.set()
            await asyncio.Event().wait()


async def await_cancelled_future() -> None:
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def return_normally() -> None:
    return None


async def raise_unavailable() -> None:
    raise LogUnavailable("away")


async def raise_fatal() -> None:
    raise FatalError("a bug")


def make_consumer(readings: ScriptedSubscription) -> StageConsumer:
    runner: Any = SimpleNamespace(
        publisher=SimpleNamespace(generation=None),
        stage=SimpleNamespace(name="probe", serves_all_generations=True),
    )
    return StageConsumer(runner, readings, "things", group="g")


async def test_ended_subscription_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_consumer, "RETRY_DELAY_S", 0)
    readings = ScriptedSubscription([await_cancelled_future, return_normally, raise_unavailable])
    running = asyncio.create_task(make_consumer(readings).run())
    async with asyncio.timeout(60):
        await readings.reading.wait()
    assert readings.run_count == 4
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_fatal_error_stops_the_consumer() -> None:
    readings = ScriptedSubscription([raise_fatal])
    with pytest.raises(FatalError):
        await make_consumer(readings).run()
    assert readings.run_count == 1
