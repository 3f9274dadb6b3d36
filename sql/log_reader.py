"""Reading the events table for stages: one reader a group and topic, woken by its doorbell, with a slow poll as the safety net."""

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
    """Subscriber over the table `events`. `owner` names this process; it must be another one after every start."""

    def __init__(self, pool: Pool, listen_dsn: str, *, owner: UUID, poll_s: float = 1.0) -> None:
        self._pool = pool
        self._doorbell = TopicListener(listen_dsn, str(owner))
        self._owner = owner
        self._poll_s = poll_s

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> PgSubscription:
        return PgSubscription(ReaderLease(self._pool, group, topic, self._owner, LEASE_S), self._doorbell, open_sink, self._poll_s)


class PgPartition:
    """The log's side of one assignment: what was delivered and not yet finished, in reading order."""

    number = 0

    def __init__(self, topic: str, cursor: ReaderCursor) -> None:
        self.topic = topic
        self.read = self.finished = cursor
        self.moved = asyncio.Event()
        self.resumed = asyncio.Event()
        self._open: deque[ReaderCursor] = deque()
        self._positions: set[int] = set()
        self._unkept: deque[ReaderCursor] = deque()
        self._highest = 0
        self._closed = False

    @property
    def committed_offset(self) -> int:
        """Positions do not grow in reading order: the lowest that may come again bounds it."""
        return min((cursor.position for cursor in self._unkept), default=self._highest + 1)

    def mark_durable(self, cursor: ReaderCursor) -> None:
        """The group's cursor is durable up to here."""
        while self._unkept and self._unkept[0] <= cursor:
            self._unkept.popleft()

    def track_delivery(self, cursor: ReaderCursor) -> None:
        self._open.append(cursor)
        self._unkept.append(cursor)
        self._highest = max(self._highest, cursor.position)
        self._positions.add(cursor.position)
        self.read = cursor

    def acknowledge(self, next_offset: int) -> None:
        """The record at `next_offset - 1`, and all delivered before it, are done. Positions do not grow in reading order: the offset names a record, not a bound."""
        while not self._closed and next_offset - 1 in self._positions:
            self.finished = self._open.popleft()
            self._positions.discard(self.finished.position)
            self.moved.set()

    def resume(self) -> None:
        self.resumed.set()

    def close(self) -> None:
        self._closed = True


class PgSubscription:
    def __init__(self, lease: ReaderLease, listener: TopicListener, open_sink: OpenSink, poll_s: float) -> None:
        self._lease = lease
        self._doorbell = listener
        self._open_sink = open_sink
        self._poll_s = poll_s

    async def run(self) -> None:
        async with self._doorbell.listen(self._lease.topic) as wakeup:
            while True:
                try:
                    await self._read_until_failure(PgPartition(self._lease.topic, await self._wait_for_lease(wakeup)), wakeup)
                except TransientError:
                    await asyncio.sleep(RETRY_S)

    async def _wait_for_lease(self, wakeup: asyncio.Event) -> ReaderCursor:
        """Wait until this process is the group's reader."""
        while (cursor := await self._lease.acquire()) is None:
            await _wait_for_event(wakeup, self._poll_s)
        return cursor

    async def _read_until_failure(self, partition: PgPartition, wakeup: asyncio.Event) -> None:
        """Until one of the two fails. No task group: it says what its tasks raised, and not that it was cancelled, where a connection fails by being interrupted."""
        sink = self._open_sink(partition)
        tasks = asyncio.create_task(self._commit_until_failure(partition)), asyncio.create_task(self._deliver_until_failure(partition, sink, wakeup))
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
        await sink.close()
        partition.close()
        with suppress(TransientError):
            await self._lease.renew(partition.finished)
            await self._lease.release()

    async def _commit_until_failure(self, partition: PgPartition) -> None:
        """Write the cursor soon after it moved, and renew the lease in good time."""
        while True:
            await _wait_for_event(partition.moved, LEASE_S / 3)
            finished = partition.finished
            await self._lease.renew(finished)
            partition.mark_durable(finished)
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _deliver_until_failure(self, partition: PgPartition, sink: Sink, wakeup: asyncio.Event) -> None:
        while True:
            wakeup.clear()
            rows = await self._fetch_page(partition.read)
            readable_rows = [row for row in rows if row["ripe"]]
            for row in readable_rows:
                await _wait_for_capacity(partition, sink)
                partition.track_delivery(ReaderCursor(row["xact"], row["position"]))
                sink.offer(to_stored_record(partition.topic, row))
            await _wait_for_capacity(partition, sink)
            if not readable_rows:
                await _wait_for_event(wakeup, HORIZON_POLL_S if rows else self._poll_s)

    async def _fetch_page(self, after: ReaderCursor) -> list[asyncpg.Record]:
        with translate_log_errors():
            return await self._lease.pool.fetch(load_query("read_events"), self._lease.topic, after.xact, after.position, PAGE_RECORDS, PAGE_BYTES)


async def _wait_for_capacity(partition: PgPartition, sink: Sink) -> None:
    while sink.is_full:
        partition.resumed.clear()
        if sink.is_full:
            await partition.resumed.wait()


async def _wait_for_event(event: asyncio.Event, timeout_s: float) -> None:
    # Not wait_for: in Python 3.11 it swallows a cancellation that arrives together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()


__all__ = ["LeaseLost", "PgSubscriber", "PgSubscription"]
