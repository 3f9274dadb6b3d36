"""A stage of a generation, reading its topic for as long as it is asked to."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from schemas.errors import LogUnavailable, TransientError
from schemas.ports.log import Partition, Sink, Subscriber
from schemas.ports.pauses import WHOLE, Pauses
from streams.partition import RENEWED_S, Bounds, Held, PartitionSink, Standing
from streams.runner import Runner

log = structlog.get_logger(__name__)
AGAIN_AFTER_S = 1.0


def group_name(stage: str, generation: str | None) -> str:
    """The consumer group: one for each stage and generation, so that more workers share the partitions."""
    return f"anabranch.{stage}.{generation}" if generation else f"anabranch.{stage}"


@dataclass(slots=True)
class Host:
    """Runs one stage until cancelled. Raises what made the stage stop: FatalError, or a bug of the runtime."""

    runner: Runner
    subscriber: Subscriber
    topic: str
    bounds: Bounds = field(default_factory=Bounds)
    together: Held = field(default_factory=Held)
    failure: asyncio.Future[None] | None = None
    group: str | None = None
    """That of the stage and its generation, where nothing else is said."""
    pauses: Pauses | None = None
    """Where it is told that a partition stands still."""

    async def run(self) -> None:
        while True:
            try:
                await self._read()
            except TransientError as error:
                log.warning("a stage begins to read again", group=self._group(), topic=self.topic, code=error.code, detail=error.detail)
                await asyncio.sleep(AGAIN_AFTER_S)

    async def _read(self) -> None:
        """Until it fails. Reading has no end of its own: where it ends because something that it waited for was cancelled, nobody else would notice."""
        self.failure = asyncio.get_running_loop().create_future()
        reading = asyncio.create_task(self.subscriber.subscribe(self._group(), self.topic, self.open_sink).run())
        telling = asyncio.create_task(self._tell())
        try:
            await asyncio.wait({reading, self.failure}, return_when=asyncio.FIRST_COMPLETED)
            if self.failure.done():
                self.failure.result()
            if not reading.cancelled():
                reading.result()
            raise LogUnavailable(f"Reading of {self.topic} was broken off by what it waited for.")
        finally:
            reading.cancel()
            telling.cancel()
            await asyncio.gather(reading, telling, return_exceptions=True)

    async def _tell(self) -> None:
        """Which engine the stage waits for, as long as it does. What cannot be told now is told later."""
        told = False
        while self.pauses is not None:
            awaited = self.runner.awaited
            with suppress(TransientError):
                if awaited is not None:
                    await self.pauses.note(self._group(), self.topic, WHOLE, awaited)
                elif told:
                    await self.pauses.forget(self._group(), self.topic, WHOLE)
                told = awaited is not None
            await asyncio.sleep(RENEWED_S)

    def _group(self) -> str:
        generation = self.runner.publisher.generation
        return self.group or group_name(self.runner.stage.name, None if self.runner.stage.shared or generation is None else generation.name)

    def open_sink(self, partition: Partition) -> Sink:
        standing = Standing(self.pauses, self._group()) if self.pauses is not None else None
        return PartitionSink(self.runner, partition, self._fail, self.bounds, self.together, standing)

    def _fail(self, error: BaseException) -> None:
        if self.failure is not None and not self.failure.done():
            self.failure.set_exception(error)
