"""Reading a change topic that somebody else writes: records in, applied in batches, acknowledged when `raw` has what follows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import cast

import structlog

from schemas.errors import ConfigurationError, PermanentError, TransientError
from schemas.ports.log import EventLog, Partition, Sink, Subscriber
from schemas.ports.sources import EndedSnapshot, SourceStore
from schemas.records import StoredRecord
from schemas.sources import DebeziumSource, DeclaredSource
from streams.runner import Patience
from streams.sources.applying import Applier, Place
from streams.sources.burying import Undertaker
from streams.sources.envelope import Saying, SnapshotEnd, sayings

log = structlog.get_logger(__name__)
BATCH = 500
QUEUE_BYTES = 8 * 1024 * 1024
LOOK_S = 1.0
LOOKS = 10
"""At what has passed, for each one at what the topic holds."""


@dataclass(slots=True)
class TopicReader:
    """Runs until cancelled, or raises what stopped it. Any number of workers share the partitions."""

    source: DeclaredSource
    takes: DebeziumSource
    applier: Applier
    topics: EventLog
    """As the broker names them: without our prefix."""
    subscriber: Subscriber
    group: str
    undertaker: Undertaker
    store: SourceStore
    patience: Patience
    failure: asyncio.Future[None] | None = None

    async def run(self) -> None:
        await self._until_the_topic_is_there()
        self.failure = asyncio.get_running_loop().create_future()
        await self.patiently(self.applier.say_what_is_owed)
        await self.patiently(lambda: self._status("reading"))
        tasks = [
            asyncio.create_task(self.subscriber.subscribe(self.group, self.takes.topic, self.open_sink).run()),
            asyncio.create_task(self._look_after_snapshots()),
        ]
        try:
            done, _ = await asyncio.wait({*tasks, self.failure}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def open_sink(self, partition: Partition) -> Sink:
        return TopicSink(self, partition)

    async def understood(self, stored: StoredRecord) -> list[Saying]:
        """What a record says; one that cannot be read is buried and says nothing."""
        place = stored.position
        try:
            return sayings(stored.record, self.source.epoch_at(place.partition, place.offset), self.takes.mapping)
        except PermanentError as error:
            refusal = error
        await self.patiently(lambda: self.undertaker.bury(stored, refusal))
        return []

    async def patiently(self, call: Callable[[], Awaitable[object]]) -> None:
        attempt = 0
        while True:
            try:
                await call()
                return
            except TransientError as error:
                attempt += 1
                log.warning("waiting", source=self.source.spec.name, code=error.code, detail=error.detail, attempt=attempt)
                await asyncio.sleep(self.patience.pause(attempt))

    def fail(self, error: BaseException) -> None:
        if self.failure is not None and not self.failure.done():
            self.failure.set_exception(error)

    async def _until_the_topic_is_there(self) -> None:
        while True:
            try:
                await self.topics.ends(self.takes.topic)
                return
            except (ConfigurationError, TransientError) as error:
                detail = error.detail
            await self.patiently(partial(self._status, "waiting", detail))
            await asyncio.sleep(LOOK_S)

    async def _status(self, state: str, detail: str = "") -> None:
        await self.store.note(self.source.spec.name, "status", {"state": state, "detail": detail})

    async def is_read(self, ended: EndedSnapshot) -> bool:
        """Whether the topic holds no record where none has passed: its last offsets may be marks of transactions. However long nothing comes, what is still to
        be read is waited for: its rows are there."""
        nothing = dict.fromkeys(await self.topics.ends(ended.topic), 0)
        starts, ends = ({**nothing, **{partition: place[side] for partition, place in ended.unread.items()}} for side in (0, 1))
        async with aclosing(cast(AsyncGenerator[StoredRecord, None], self.topics.read(ended.topic, starts, ends))) as records:
            return await anext(records, None) is None

    async def _look_after_snapshots(self) -> None:
        while True:
            for _ in range(LOOKS):
                await self.patiently(self.applier.end_snapshots)
                await asyncio.sleep(LOOK_S)
            await self.patiently(lambda: self.applier.end_snapshots(self.is_read))


class TopicSink:
    """One partition: a queue bounded in bytes, and one batch at a time."""

    def __init__(self, reader: TopicReader, partition: Partition) -> None:
        self._reader, self._partition = reader, partition
        self._queue: deque[StoredRecord] = deque()
        self._bytes = 0
        self._paused = False
        self._arrived = asyncio.Event()
        self._work = asyncio.create_task(self._run())

    def offer(self, record: StoredRecord) -> None:
        self._queue.append(record)
        self._bytes += record.size
        self._paused = self._paused or self.full
        self._arrived.set()

    @property
    def full(self) -> bool:
        return self._bytes > QUEUE_BYTES

    async def close(self) -> None:
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        self._queue.clear()

    async def _run(self) -> None:
        try:
            while True:
                self._arrived.clear()
                if not self._queue:
                    await self._arrived.wait()
                await self._batch([self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))])
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._reader.fail(error)

    async def _batch(self, records: Sequence[StoredRecord]) -> None:
        by_key: dict[str, StoredRecord] = {}
        said: list[Saying] = []
        for stored in records:
            for saying in await self._reader.understood(stored):
                said.append(saying)
                by_key[getattr(saying, "key", "")] = stored
        await self._apply(said, by_key, records[-1].position.offset + 1)
        self._bytes -= sum(record.size for record in records)
        self._partition.acknowledge(records[-1].position.offset + 1)
        if self._paused and not self.full:
            self._paused = False
            self._partition.resume()

    async def _apply(self, said: list[Saying], by_key: Mapping[str, StoredRecord], next_offset: int) -> None:
        ended = any(isinstance(saying, SnapshotEnd) for saying in said)

        async def apply() -> None:
            ends = await self._reader.topics.ends(self._partition.topic) if ended else {}
            place = Place(self._partition.topic, self._partition.number, next_offset, {part: end for part, (first, end) in ends.items() if end > first})
            refused = await self._reader.applier.apply(said, place)
            for key, error in refused.items():
                if key in by_key:
                    await self._reader.undertaker.bury(by_key[key], error)

        await self._reader.patiently(apply)
