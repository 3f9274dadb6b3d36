"""Change topic source (Debezium). Records are acknowledged when `raw` has the resulting events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import structlog

from schemas.errors import ConfigurationError, PermanentError, TransientError
from schemas.ports.log import EventLog, Partition, Sink, Subscriber
from schemas.ports.sources import EndedSnapshot, SourceStore
from schemas.sources import DebeziumSource, DeclaredSource
from schemas.topics import StoredRecord
from streams.retry import Backoff, retry_outages
from streams.sources.change_applier import BatchPosition, ChangeApplier, ChangeDeadLetters
from streams.sources.debezium import ChangeEvent, SnapshotEnd, parse_change_events

log = structlog.get_logger(__name__)
BATCH_RECORDS = 500
QUEUE_BYTES = 8 * 1024 * 1024
CHECK_INTERVAL_S = 1.0
CHECKS_PER_TOPIC_READ = 10
"""Checks of applied offsets per check that reads the topic."""


@dataclass(slots=True)
class TopicReader:
    """Runs until cancelled. Any number of workers share the partitions."""

    source: DeclaredSource
    config: DebeziumSource
    applier: ChangeApplier
    unprefixed_log: EventLog
    """A log without our topic prefix: the topic is foreign."""
    subscriber: Subscriber
    group: str
    dead_letters: ChangeDeadLetters
    store: SourceStore
    backoff: Backoff
    failure: asyncio.Future[None] | None = None

    async def run(self) -> None:
        await self._wait_for_topic()
        self.failure = asyncio.get_running_loop().create_future()
        # First: an earlier process may have stored events without publishing them.
        await self.retry_outages(self.applier.emit_pending)
        await self.retry_outages(lambda: self._store_status("reading"))
        tasks = [
            asyncio.create_task(
                self.subscriber.subscribe(self.group, self.config.topic, self.open_sink).run()
            ),
            asyncio.create_task(self._run_snapshot_loop()),
        ]
        try:
            done_tasks, _ = await asyncio.wait(
                {*tasks, self.failure}, return_when=asyncio.FIRST_COMPLETED
            )
            for done_task in done_tasks:
                done_task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def open_sink(self, partition: Partition) -> Sink:
        return TopicSink(self, partition)

    async def parse_or_dead_letter(self, stored_record: StoredRecord) -> list[ChangeEvent]:
        """Parse a record; dead-letter it if it is unreadable."""
        position = stored_record.position
        try:
            return parse_change_events(
                stored_record.record,
                # By offset, not the present epoch: records from before a reset may be read again.
                self.source.epoch_at(position.partition, position.offset),
                self.config.mapping,
            )
        except PermanentError as error:
            # Kept under another name: Python unbinds `error` at the end of the clause.
            parse_error = error
        await self.retry_outages(lambda: self.dead_letters.publish(stored_record, parse_error))
        return []

    async def retry_outages(self, call: Callable[[], Awaitable[object]]) -> None:
        await retry_outages(call, self.backoff, source=self.source.spec.name)

    def fail(self, error: BaseException) -> None:
        if self.failure is not None and not self.failure.done():
            self.failure.set_exception(error)

    async def _wait_for_topic(self) -> None:
        while True:
            try:
                await self.unprefixed_log.fetch_offset_bounds(self.config.topic)
                return
            except (ConfigurationError, TransientError) as error:
                detail = error.detail
            await self.retry_outages(partial(self._store_status, "waiting", detail))
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _store_status(self, state: str, detail: str = "") -> None:
        await self.store.set_note(
            self.source.spec.name, "status", {"state": state, "detail": detail}
        )

    async def is_snapshot_read(self, ended_snapshot: EndedSnapshot) -> bool:
        """Return whether the unread offsets of a snapshot hold no records."""
        # A partition's last offsets may be transaction markers, which never arrive. Real records
        # are waited for, however long it takes: ending the snapshot before would withdraw their
        # rows.
        empty_offsets = dict.fromkeys(
            await self.unprefixed_log.fetch_offset_bounds(ended_snapshot.topic), 0
        )
        starts, ends = (
            {
                **empty_offsets,
                **{
                    partition: unread_range[bound]
                    for partition, unread_range in ended_snapshot.unread_offsets.items()
                },
            }
            for bound in (0, 1)
        )
        async with aclosing(
            self.unprefixed_log.read(ended_snapshot.topic, starts, ends)
        ) as records:
            return await anext(records, None) is None

    async def _run_snapshot_loop(self) -> None:
        while True:
            for _ in range(CHECKS_PER_TOPIC_READ):
                await self.retry_outages(self.applier.end_snapshots)
                await asyncio.sleep(CHECK_INTERVAL_S)
            await self.retry_outages(lambda: self.applier.end_snapshots(self.is_snapshot_read))


class TopicSink:
    """Sink of one partition: a queue bounded in bytes, one batch at a time."""

    def __init__(self, reader: TopicReader, partition: Partition) -> None:
        self._reader, self._partition = reader, partition
        self._queue: deque[StoredRecord] = deque()
        self._bytes = 0
        self._is_paused = False
        self._records_arrived = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def offer(self, record: StoredRecord) -> None:
        self._queue.append(record)
        self._bytes += record.size_bytes
        self._is_paused = self._is_paused or self.is_full
        self._records_arrived.set()

    @property
    def is_full(self) -> bool:
        return self._bytes > QUEUE_BYTES

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._queue.clear()

    async def _run(self) -> None:
        try:
            while True:
                self._records_arrived.clear()
                if not self._queue:
                    await self._records_arrived.wait()
                await self._apply_batch(
                    [self._queue.popleft() for _ in range(min(BATCH_RECORDS, len(self._queue)))]
                )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._reader.fail(error)

    async def _apply_batch(self, records: Sequence[StoredRecord]) -> None:
        by_key: dict[str, StoredRecord] = {}
        change_events: list[ChangeEvent] = []
        for stored_record in records:
            for change_event in await self._reader.parse_or_dead_letter(stored_record):
                change_events.append(change_event)
                by_key[getattr(change_event, "key", "")] = stored_record
        # Acknowledged only afterwards: the events of these changes are then on `raw`.
        await self._apply_changes(change_events, by_key, records[-1].position.offset + 1)
        self._bytes -= sum(record.size_bytes for record in records)
        self._partition.acknowledge(records[-1].position.offset + 1)
        if self._is_paused and not self.is_full:
            self._is_paused = False
            self._partition.resume()

    async def _apply_changes(
        self, change_events: list[ChangeEvent], by_key: Mapping[str, StoredRecord], next_offset: int
    ) -> None:
        has_snapshot_end = any(
            isinstance(change_event, SnapshotEnd) for change_event in change_events
        )

        async def apply_once() -> None:
            ends = (
                await self._reader.unprefixed_log.fetch_offset_bounds(self._partition.topic)
                if has_snapshot_end
                else {}
            )
            position = BatchPosition(
                self._partition.topic,
                self._partition.number,
                next_offset,
                {
                    partition: end
                    for partition, (first_offset, end) in ends.items()
                    # An empty partition never reports progress, so no snapshot may wait for it.
                    if end > first_offset
                },
            )
            rejected = await self._reader.applier.apply(change_events, position)
            for key, error in rejected.items():
                if key in by_key:
                    await self._reader.dead_letters.publish(by_key[key], error)

        # Repeating is safe: stored changes stay, and pending events keep their ids.
        await self._reader.retry_outages(apply_once)
