from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from processors import TOPICS
from schemas.errors import ConfigurationError, DatabaseUnavailable, KeyLost, LogUnavailable
from schemas.events import QueryAnswered, QueryReceived
from schemas.topics import MAX_EVENT_BYTES, QUERIES, Position, Record, count_partitions
from services.background_tasks import run_in_background
from services.query.event_buffer import QueryEventBuffer
from streams.codec import Codec
from streams.payload_keys import PlainKeys
from tests.fakes.memory_log import MemoryLog
from tests.support.eventually import eventually

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FailingLog(MemoryLog):
    error: Exception | None = None
    append_count = refused_count = 0

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if self.error is not None:
            self.refused_count += 1
            raise self.error
        self.append_count += 1
        return await super().append(records)


class UnavailableKeys(PlainKeys):
    unavailable = True
    refused_count = 0

    async def seal(
        self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None
    ) -> None:
        if self.unavailable:
            self.refused_count += 1
            raise DatabaseUnavailable("away")


class KeysWithOneLost(PlainKeys):
    async def seal(
        self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None
    ) -> None:
        if subject == UUID(int=1):
            raise KeyLost("gone")


async def make_buffer(most: int = 100) -> tuple[QueryEventBuffer, FailingLog, list[int]]:
    log, lost = FailingLog(), list[int]()
    await log.create_topics(count_partitions(TOPICS, 1), retention_ms={})
    return (
        QueryEventBuffer(log, Codec(), lambda: NOW, lost.append, max_pending=most, retry_s=0),
        log,
        lost,
    )


def make_query_event(number: int) -> QueryReceived:
    return QueryReceived(
        run_id=UUID(int=number),
        tenant="default",
        kind="query",
        request={"query": "x"},
        received_at=NOW,
    )


async def read_query_numbers(log: FailingLog) -> list[int]:
    return [(await Codec().decode(stored)).data.run_id.int async for stored in log.read(QUERIES)]


async def test_buffered_events_are_published_in_order() -> None:
    buffer, log, lost = await make_buffer()
    for number in range(3):
        buffer.offer(make_query_event(number))
    await buffer.flush()
    assert await read_query_numbers(log) == [0, 1, 2]
    assert lost == []


async def test_full_buffer_drops_oldest_and_counts_them() -> None:
    buffer, log, lost = await make_buffer(most=2)
    log.error = LogUnavailable("away")
    for number in range(5):
        buffer.offer(make_query_event(number))
    assert sum(lost) == 3
    log.error = None
    await buffer.flush()
    assert await read_query_numbers(log) == [3, 4]


@pytest.mark.parametrize(
    "error", [LogUnavailable("away"), ConfigurationError("there is no such topic")]
)
async def test_events_wait_until_the_log_recovers(error: Exception) -> None:
    buffer, log, lost = await make_buffer()
    log.error = error
    buffer.offer(make_query_event(1))
    async with run_in_background(buffer.run()):
        waiting = asyncio.create_task(buffer.wait_until_published(UUID(int=1)))
        await buffer.wait_until_published(UUID(int=2))
        await eventually(lambda: log.refused_count >= 2)
        assert not waiting.done()
        log.error = None
        await waiting
    assert await read_query_numbers(log) == [1]
    assert lost == []


async def test_events_wait_for_key_store() -> None:
    buffer, log, lost = await make_buffer()
    keys = UnavailableKeys()
    buffer.codec = Codec(keys)
    buffer.offer(make_query_event(1))
    async with run_in_background(buffer.run()):
        await eventually(lambda: keys.refused_count >= 2)
        keys.unavailable = False
        await eventually(lambda: read_query_numbers(log))
    assert lost == []


async def test_buffered_events_are_published_in_one_append() -> None:
    buffer, log, _ = await make_buffer()
    async with run_in_background(buffer.run()):
        for number in range(3):
            buffer.offer(make_query_event(number))
        await eventually(lambda: read_query_numbers(log), lambda numbers: len(numbers) >= 3)
    assert log.append_count == 1


async def test_unsent_events_at_shutdown_count_as_lost() -> None:
    buffer, log, lost = await make_buffer()
    log.error = LogUnavailable("away")
    buffer.offer(make_query_event(1))
    await buffer.flush()
    assert sum(lost) == 1


async def test_oversized_event_is_dropped_alone() -> None:
    buffer, log, lost = await make_buffer()
    large = QueryAnswered(
        run_id=UUID(int=1),
        tenant="default",
        generation="g1",
        answered_at=NOW,
        response={"text": "x" * MAX_EVENT_BYTES},
    )
    buffer.offer(large)
    buffer.offer(make_query_event(2))
    await buffer.flush()
    assert await read_query_numbers(log) == [2]
    assert sum(lost) == 1


async def test_event_that_cannot_be_sealed_is_dropped_alone() -> None:
    buffer, log, lost = await make_buffer()
    buffer.codec = Codec(KeysWithOneLost())
    buffer.offer(make_query_event(1))
    buffer.offer(make_query_event(2))
    await buffer.flush()
    assert await read_query_numbers(log) == [2]
    assert sum(lost) == 1


async def test_lost_event_is_counted_once_despite_retries() -> None:
    buffer, log, lost = await make_buffer()
    buffer.codec = Codec(KeysWithOneLost())
    buffer.offer(make_query_event(2))
    buffer.offer(make_query_event(1))
    log.error = LogUnavailable("away")
    for _ in range(3):
        await buffer.flush()
        lost.remove(1)  # each flush reports the events that remain
    log.error = None
    await buffer.flush()
    assert await read_query_numbers(log) == [2] and lost == [1]


async def test_overly_nested_event_is_dropped_alone() -> None:
    buffer, log, lost = await make_buffer()
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    buffer.offer(
        make_query_event(1).model_copy(update={"request": {"query": "x", "filters": deep}})
    )
    buffer.offer(make_query_event(2))
    await buffer.flush()
    assert await read_query_numbers(log) == [2] and sum(lost) == 1
