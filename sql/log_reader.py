"""Read the events table for stages, with one reader per group and topic.

NOTIFY wakes the reader; polling is the fallback.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from uuid import UUID

import asyncpg

from schemas.errors import TransientError
from schemas.ports.log import OpenSink, Sink
from sql.errors import translate_log_errors
from sql.lease import LeaseLost, ReaderCursor, ReaderLease
from sql.listener import TopicListener
from sql.log_records import to_stored_record
from sql.pool import Pool
from sql.query_loader import load_query

PAGE_RECORDS = 500
PAGE_BYTES = 8_000_000
LEASE_S = 10.0
COMMIT_EVERY_S = 0.1
HORIZON_POLL_S = 0.002
RETRY_S = 0.5


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

    def acknowledge(self, next_offset: int) -> None:
        """Finish the record at `next_offset - 1` and all records delivered before it.

        Positions do not ascend in reading order: the offset identifies a record and is no bound.
        """
        while not self._closed and next_offset - 1 in self._positions:
            self.finished = self._open.popleft()
            self._positions.discard(self.finished.position)
            self.moved.set()

    def resume(self) -> None:
        self.resumed.set()

    def close(self) -> None:
        self._closed = True


class PgSubscription:
    def __init__(
        self, lease: ReaderLease, listener: TopicListener, open_sink: OpenSink, poll_s: float
    ) -> None:
        self._lease = lease
        self._listener = listener
        self._open_sink = open_sink
        self._poll_s = poll_s

    async def run(self) -> None:
        async with self._listener.listen(self._lease.topic) as wakeup:
            while True:
                try:
                    await self._read_until_failure(
                        PgPartition(self._lease.topic, await self._wait_for_lease(wakeup)), wakeup
                    )
                except TransientError:
                    await asyncio.sleep(RETRY_S)

    async def _wait_for_lease(self, wakeup: asyncio.Event) -> ReaderCursor:
        """Wait for the group's lease and return its cursor."""
        while (cursor := await self._lease.acquire()) is None:
            await _wait_for_event(wakeup, self._poll_s)
        return cursor

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
            await self._release(partition, sink)

    async def _release(self, partition: PgPartition, sink: Sink) -> None:
        # The sink first: it acknowledges the records that it has finished.
        await sink.close()
        partition.close()
        with suppress(TransientError):
            await self._lease.renew(partition.finished)
            await self._lease.release()

    async def _commit_until_failure(self, partition: PgPartition) -> None:
        """Store the cursor soon after it moves, and renew the lease in time."""
        while True:
            await _wait_for_event(partition.moved, LEASE_S / 3)
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
            rows = await self._fetch_page(partition.read)
            readable_rows = [row for row in rows if row["ripe"]]
            for row in readable_rows:
                await _wait_for_capacity(partition, sink)
                partition.track_delivery(ReaderCursor(row["xact"], row["position"]))
                sink.offer(to_stored_record(partition.topic, row))
            await _wait_for_capacity(partition, sink)
            # Rows above the horizon become readable when a running transaction ends, which may send
            # no notification.
            if not readable_rows:
                await _wait_for_event(wakeup, HORIZON_POLL_S if rows else self._poll_s)

    async def _fetch_page(self, after: ReaderCursor) -> list[asyncpg.Record]:
        with translate_log_errors():
            return await self._lease.pool.fetch(
                load_query("read_events"),
                self._lease.topic,
                after.xact,
                after.position,
                PAGE_RECORDS,
                PAGE_BYTES,
            )


async def _wait_for_capacity(partition: PgPartition, sink: Sink) -> None:
    while sink.is_full:
        partition.resumed.clear()
        if sink.is_full:
            await partition.resumed.wait()


async def _wait_for_event(event: asyncio.Event, timeout_s: float) -> None:
    # Not asyncio.wait_for: in Python 3.11 it swallows a cancellation that arrives together with the
    # event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()


__all__ = ["LeaseLost", "PgSubscriber", "PgSubscription"]
