"""Publish query events in the background; count lost events, and keep the latest answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import structlog
from cachetools import FIFOCache

from schemas.errors import PermanentError, TransientError
from schemas.events import (
    EventData,
    QueryAnswered,
    QueryReceived,
    RunProgressed,
    RunStarted,
    RunStopped,
    build_root_event,
)
from schemas.ids import content_id
from schemas.ports.log import RecordAppender
from schemas.topics import MAX_EVENT_BYTES, QUERIES, Record
from services.background_tasks import run_in_background
from streams.codec import Codec

log = structlog.get_logger(__name__)
CE_SOURCE = "anabranch/api"
MAX_RECENT_RUNS = 10_000


@dataclass(slots=True)
class QueryEventBuffer:
    """`offer` never waits. Events that are offered within `linger_s`, or while a batch is being
    written, are published together: an append costs as much as a dozen events in it.

    While the log is unavailable, the newest `max_pending` events are kept. Events that are too
    large are lost.
    """

    event_log: RecordAppender
    codec: Codec
    clock: Callable[[], datetime]
    on_lost: Callable[[int], None]
    max_pending: int = 2_000
    batch_size: int = 64
    retry_s: float = 1.0
    linger_s: float = 0.05
    pending: deque[EventData] = field(default_factory=deque)
    new_event: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, event: EventData) -> None:
        self.pending.append(event)
        while len(self.pending) > self.max_pending:
            self.pending.popleft()
            self.on_lost(1)
        self.new_event.set()

    async def wait_until_published(self, run_id: UUID) -> None:
        """Wait until no event of the run is pending."""
        while any(getattr(event, "run_id", None) == run_id for event in self.pending):
            await asyncio.sleep(self.linger_s)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            while not self.pending:
                # No await between check and `clear`, so no event is missed.
                self.new_event.clear()
                await self.new_event.wait()
                await asyncio.sleep(self.linger_s)
            if not await self._try_send():
                await asyncio.sleep(self.retry_s)

    async def flush(self) -> None:
        """Try once more to publish the pending events."""
        while self.pending and await self._try_send():
            continue
        if self.pending:
            self.on_lost(len(self.pending))

    async def _try_send(self) -> bool:
        try:
            await self._send_batch()
            return True
        except TransientError as error:
            log.warning("query_events_postponed", code=error.code, waiting=len(self.pending))
        except Exception:
            # Keep running: a stopped buffer would record no further query.
            log.exception("query_events_failed", waiting=len(self.pending))
        return False

    async def _send_batch(self) -> None:
        """Publish the head of the queue.

        It stays there until the log has it: events have stable ids, so a repeated write is
        harmless.
        """
        batch = [self.pending[index] for index in range(min(self.batch_size, len(self.pending)))]
        results = await asyncio.gather(*map(self._encode, batch), return_exceptions=True)
        for event, record in zip(batch, results, strict=True):
            if record is not None:
                continue
            # An event is dropped once, however often its batch is retried.
            indexes = [index for index, pending in enumerate(self.pending) if pending is event]
            if indexes:
                del self.pending[indexes[0]]
                self.on_lost(1)
        records: list[Record] = []
        for record in results:
            if isinstance(record, BaseException):
                # Nothing was published yet, so the whole batch is retried.
                raise record
            if record is not None:
                records.append(record)
        await self.event_log.append(records)
        for event in batch:
            # `offer` may have dropped the head while the log was being written.
            if self.pending and self.pending[0] is event:
                self.pending.popleft()

    async def _encode(self, event: EventData) -> Record | None:
        assert isinstance(
            event, QueryReceived | QueryAnswered | RunStarted | RunProgressed | RunStopped
        )
        number = (event.number,) if isinstance(event, RunProgressed) else ()
        identity = content_id("usage", event.run_id, event.name, *number)
        envelope = build_root_event(
            event,
            identity,
            CE_SOURCE,
            self.clock,
            tenant=event.tenant,
            correlation_id=str(event.run_id),
        )
        try:
            record = await self.codec.encode(envelope, QUERIES, str(event.run_id))
        except (PermanentError, ValueError) as error:
            log.warning("query_event_unwritable", run=str(event.run_id), error=str(error))
            return None
        if len(record.value or b"") <= MAX_EVENT_BYTES:
            return record
        log.warning("query_event_too_large", run=str(event.run_id), bytes=len(record.value or b""))
        return None


@dataclass(slots=True)
class QueryEventTap:
    """Publish query events, and capture the answers of awaited runs."""

    publish: Callable[[EventData], None]
    awaited: dict[UUID, QueryAnswered | None] = field(default_factory=dict)
    recent_runs: FIFOCache[tuple[str, UUID], None] = field(
        default_factory=lambda: FIFOCache(MAX_RECENT_RUNS)
    )

    def offer(self, event: EventData) -> None:
        self.publish(event)
        if isinstance(event, QueryAnswered):
            # Feedback may arrive before the tables have the run.
            self.recent_runs[event.tenant, event.run_id] = None
        if isinstance(event, QueryAnswered) and event.run_id in self.awaited:
            self.awaited[event.run_id] = event

    def has_answered(self, tenant: str, run_id: UUID) -> bool:
        return (tenant, run_id) in self.recent_runs

    @contextmanager
    def capture(self, run_id: UUID) -> Iterator[None]:
        self.awaited[run_id] = None
        try:
            yield
        finally:
            del self.awaited[run_id]


@asynccontextmanager
async def open_event_buffer(
    event_log: RecordAppender,
    codec: Codec,
    clock: Callable[[], datetime],
    on_lost: Callable[[int], None],
) -> AsyncIterator[QueryEventBuffer]:
    """Open a buffer that publishes in the background, and flush it at the end."""
    event_buffer = QueryEventBuffer(event_log, codec, clock, on_lost)
    try:
        # Ends before the flush, so that only one of the two writes.
        async with run_in_background(event_buffer.run()):
            yield event_buffer
    finally:
        await event_buffer.flush()
