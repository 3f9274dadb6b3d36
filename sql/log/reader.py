"""Read the events table for stages, with one reader per group and topic.

NOTIFY wakes the reader; polling is the fallback.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from schemas.errors import DatabaseUnavailable, TransientError
from schemas.ports.log import OpenSink, Sink
from sql.database import Pool, connect, load_query
from sql.errors import translate_log_errors
from sql.log.event_log import fetch_log_rows, fetch_log_value, to_stored_record

log = structlog.get_logger(__name__)
CHANNEL = "anabranch_events"
RECONNECT_S = 1.0
PAGE_RECORDS = 500
PAGE_BYTES = 8_000_000
# Renewed at a third of it, so two renewals may fail before another process takes over.
LEASE_S = 10.0
# One cursor update for all records finished meanwhile; a crash delivers these again.
COMMIT_EVERY_S = 0.1
# Open appends last milliseconds, and their end may send no notification to this topic.
HORIZON_POLL_S = 0.002
RETRY_S = 0.5


class LeaseLost(TransientError):
    """Another process holds the group's lease."""

    code = "LEASE_LOST"


@dataclass(frozen=True, slots=True, order=True)
class ReaderCursor:
    """The last finished record in reading order: transaction, then position."""

    xact: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class ReaderLease:
    pool: Pool
    group: str
    topic: str
    owner: UUID
    seconds: float

    async def acquire(self) -> ReaderCursor | None:
        """Acquire the lease; return the group's cursor, or None if another process holds it."""
        with translate_log_errors():
            row = await self.pool.fetchrow(
                load_query("acquire_lease"), self.group, self.topic, self.owner, self.seconds
            )
        return ReaderCursor(row["xact"], row["position"]) if row else None

    async def renew(self, cursor: ReaderCursor) -> None:
        """Store the cursor and renew the lease. Raises LeaseLost."""
        renewed_position = await fetch_log_value(
            self.pool,
            "renew_lease",
            self.group,
            self.topic,
            self.owner,
            self.seconds,
            cursor.xact,
            cursor.position,
        )
        if renewed_position is None:
            raise LeaseLost(
                f"Another process has taken the lease of group {self.group} on topic {self.topic}."
            )

    async def release(self) -> None:
        with translate_log_errors():
            await self.pool.execute(load_query("release_lease"), self.group, self.topic, self.owner)


class TopicListener:
    """Sets the asyncio events of a topic's listeners when records are committed to it.

    Notifications sent while the connection is down are lost, so readers must poll as well. The
    connection's application name is `anabranch <name>`; other processes read from it that this one
    is alive.
    """

    def __init__(self, dsn: str, name: str) -> None:
        self._dsn = dsn
        self._name = f"anabranch {name}"
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @asynccontextmanager
    async def listen(self, topic: str) -> AsyncIterator[asyncio.Event]:
        """Yield an event that is set whenever the topic may have new records."""
        event = asyncio.Event()
        # Before the wait for the connection, so that no notification in between is lost.
        self._waiting[topic].add(event)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen_forever())
        try:
            await self._ready.wait()
            yield event
        finally:
            self._waiting[topic].discard(event)
            if not any(self._waiting.values()):
                task, self._listening = self._listening, None
                self._ready.clear()
                if task:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen_until_lost()
            except DatabaseUnavailable as error:
                log.debug("listener_disconnected", detail=error.detail)
            except Exception:
                log.exception("listener_failed", connection=self._name, fallback="polling")
                # Release readers that wait for the first connection: they poll.
                self._ready.set()
            await asyncio.sleep(RECONNECT_S)

    async def _listen_until_lost(self) -> None:
        connection = await connect(self._dsn, name=self._name)
        lost = asyncio.Event()
        try:
            # LISTEN waits silently: without this a lost connection goes unnoticed.
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._on_notify)
            self._ready.set()
            await lost.wait()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise DatabaseUnavailable(f"The LISTEN connection was lost: {error}") from error
        finally:
            # `close` would wait for an answer of a server that may be gone.
            connection.terminate()

    def _on_notify(self, _connection: Any, _process: int, _channel: str, topics: Any) -> None:
        for topic in str(topics).split(","):
            # `get`, not `[]`: a defaultdict would grow with every topic that anyone appends to.
            for event in self._waiting.get(topic, ()):
                event.set()


class PgSubscriber:
    """Implements `schemas.ports.log.Subscriber` over the table `events`.

    `owner` identifies this process and must differ after every start.
    """

    def __init__(self, pool: Pool, listen_dsn: str, *, owner: UUID, poll_s: float = 1.0) -> None:
        self._pool = pool
        self._listener = TopicListener(listen_dsn, str(owner))
        self._owner = owner
        self._poll_s = poll_s

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> PgSubscription:
        return PgSubscription(
            ReaderLease(self._pool, group, topic, self._owner, LEASE_S),
            self._listener,
            open_sink,
            self._poll_s,
        )


class PgPartition:
    """One assigned partition: the delivered but unfinished records, in reading order."""

    number = 0

    def __init__(self, topic: str, cursor: ReaderCursor) -> None:
        self.topic = topic
        self.read = self.finished = cursor
        self.moved = asyncio.Event()
        self.resumed = asyncio.Event()
        self._open: deque[ReaderCursor] = deque()
        self._skipped: set[ReaderCursor] = set()
        self._positions: set[int] = set()
        self._uncommitted: deque[ReaderCursor] = deque()
        self._highest = 0
        self._closed = False

    @property
    def committed_offset(self) -> int:
        """The offset to resume from.

        Positions do not ascend in reading order, so it is bounded by the lowest position that may
        be delivered again.
        """
        return min((cursor.position for cursor in self._uncommitted), default=self._highest + 1)

    def mark_durable(self, cursor: ReaderCursor) -> None:
        """Record that the group's cursor is stored up to here."""
        while self._uncommitted and self._uncommitted[0] <= cursor:
            self._uncommitted.popleft()

    def track_delivery(self, cursor: ReaderCursor) -> None:
        self._open.append(cursor)
        self._uncommitted.append(cursor)
        self._highest = max(self._highest, cursor.position)
        self._positions.add(cursor.position)
        self.read = cursor

    def skip(self, cursor: ReaderCursor) -> None:
        """Pass a record that the group has processed already, once those before it are finished."""
        self._highest = max(self._highest, cursor.position)
        self.read = cursor
        self._skipped.add(cursor)
        self._open.append(cursor)
        self._finish_skipped()

    def acknowledge(self, next_offset: int) -> None:
        """Finish the record at `next_offset - 1` and all records delivered before it.

        Positions do not ascend in reading order: the offset identifies a record and is no bound.
        """
        # Ends by itself: the wanted position leaves the set when its record is popped.
        while not self._closed and next_offset - 1 in self._positions:
            self.finished = self._open.popleft()
            self._positions.discard(self.finished.position)
            self.moved.set()
        self._finish_skipped()

    def _finish_skipped(self) -> None:
        while not self._closed and self._open and self._open[0] in self._skipped:
            self.finished = self._open.popleft()
            self._skipped.discard(self.finished)
            self.moved.set()

    def resume(self) -> None:
        self.resumed.set()

    def close(self) -> None:
        self._closed = True


@dataclass(frozen=True, slots=True)
class PgSubscription:
    _lease: ReaderLease
    _listener: TopicListener
    _open_sink: OpenSink
    _poll_s: float

    async def run(self) -> None:
        async with self._listener.listen(self._lease.topic) as wakeup:
            while True:
                try:
                    # A released lease notifies the topic; an expired one is found by polling.
                    while (cursor := await self._lease.acquire()) is None:
                        await _wait_for_event(wakeup, self._poll_s)
                    partition = PgPartition(self._lease.topic, cursor)
                    await self._read_until_failure(partition, wakeup)
                except TransientError:
                    await asyncio.sleep(RETRY_S)

    async def _read_until_failure(self, partition: PgPartition, wakeup: asyncio.Event) -> None:
        # No TaskGroup: when a connection fails because its task is cancelled, the group raises the
        # connection's error instead of CancelledError.
        sink = self._open_sink(partition)
        tasks = (
            asyncio.create_task(self._commit_until_failure(partition)),
            asyncio.create_task(self._deliver_until_failure(partition, sink, wakeup)),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # The sink first: it acknowledges the records that it has finished.
            await sink.close()
            # From here on late acknowledgements of the closed sink change nothing.
            partition.close()
            with suppress(TransientError):
                # The last cursor first: the next owner must not repeat finished records.
                await self._lease.renew(partition.finished)
                await self._lease.release()

    async def _commit_until_failure(self, partition: PgPartition) -> None:
        """Store the cursor soon after it moves, and renew the lease in time."""
        while True:
            await _wait_for_event(partition.moved, LEASE_S / 3)
            # A copy: it may move on during the renewal, and only what was stored is durable.
            finished = partition.finished
            await self._lease.renew(finished)
            partition.mark_durable(finished)
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _deliver_until_failure(
        self, partition: PgPartition, sink: Sink, wakeup: asyncio.Event
    ) -> None:
        while True:
            # Cleared before the fetch, so that a notification during it is not lost.
            wakeup.clear()
            rows = await fetch_log_rows(
                self._lease.pool,
                "read_events",
                self._lease.topic,
                partition.read.xact,
                partition.read.position,
                PAGE_RECORDS,
                PAGE_BYTES,
                self._lease.group,
            )
            readable_rows = [row for row in rows if row["ripe"]]
            for row in readable_rows:
                cursor = ReaderCursor(row["xact"], row["position"])
                if row["applied"]:
                    partition.skip(cursor)
                    continue
                await _wait_for_capacity(partition, sink)
                partition.track_delivery(cursor)
                sink.offer(to_stored_record(partition.topic, row))
            await _wait_for_capacity(partition, sink)
            page_bytes = sum(len(row["value"] or b"") for row in readable_rows)
            if len(readable_rows) < PAGE_RECORDS and page_bytes < PAGE_BYTES:
                # Rows above the horizon become readable when a running transaction ends, which may
                # send no notification.
                await _wait_for_event(
                    wakeup, HORIZON_POLL_S if len(rows) > len(readable_rows) else self._poll_s
                )


async def _wait_for_capacity(partition: PgPartition, sink: Sink) -> None:
    while sink.is_full:
        partition.resumed.clear()
        # Checked again: it may have drained between the check and `clear`.
        if sink.is_full:
            await partition.resumed.wait()


async def _wait_for_event(event: asyncio.Event, timeout_s: float) -> None:
    # Not asyncio.wait_for: in Python 3.11 it swallows a cancellation that arrives together with the
    # event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()
