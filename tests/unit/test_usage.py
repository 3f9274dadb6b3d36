from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from anabranch.desk.usage import UsageBuffer
from schemas.errors import ConfigurationError, DatabaseUnavailable, KeyLost, LogUnavailable
from schemas.events import QueryAnswered, QueryReceived
from schemas.records import Position, Record
from streams.codec import Codec, PlainKeys
from streams.memory import MemoryLog
from streams.topics import MAX_EVENT_BYTES, QUERIES, partition_counts

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class MoodyLog(MemoryLog):
    error: Exception | None = None
    appends = refused = 0

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if self.error is not None:
            self.refused += 1
            raise self.error
        self.appends += 1
        return await super().append(records)


class AbsentKeys(PlainKeys):
    away = True
    refused = 0

    async def seal(self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None) -> None:
        if self.away:
            self.refused += 1
            raise DatabaseUnavailable("away")


class LostKeys(PlainKeys):
    async def seal(self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None) -> None:
        if subject == UUID(int=1):
            raise KeyLost("gone")


async def buffer_over(most: int = 100) -> tuple[UsageBuffer, MoodyLog, list[int]]:
    log, lost = MoodyLog(), list[int]()
    await log.create_topics(partition_counts(1), retention_ms={})
    return UsageBuffer(log, Codec(), lambda: NOW, lost.append, most=most, pause_s=0), log, lost


def received(number: int) -> QueryReceived:
    return QueryReceived(run_id=UUID(int=number), tenant="default", kind="query", request={"query": "x"}, received_at=NOW)


async def numbers_in(log: MoodyLog) -> list[int]:
    return [(await Codec().decode(stored)).data.run_id.int async for stored in log.read(QUERIES)]


async def test_what_is_offered_reaches_the_log_in_its_order() -> None:
    buffer, log, lost = await buffer_over()
    for number in range(3):
        buffer.offer(received(number))
    await buffer.flush()
    assert await numbers_in(log) == [0, 1, 2]
    assert lost == []


async def test_a_log_that_is_away_loses_the_oldest_and_counts_them() -> None:
    buffer, log, lost = await buffer_over(most=2)
    log.error = LogUnavailable("away")
    for number in range(5):
        buffer.offer(received(number))
    assert sum(lost) == 3
    log.error = None
    await buffer.flush()
    assert await numbers_in(log) == [3, 4]


async def test_what_waits_is_sent_when_the_log_comes_back() -> None:
    buffer, log, lost = await buffer_over()
    log.error = LogUnavailable("away")
    sending = asyncio.create_task(buffer.run())
    buffer.offer(received(1))
    await asyncio.sleep(0)
    log.error = None
    async with asyncio.timeout(10):
        while not await numbers_in(log):
            await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert lost == []


async def test_facts_wait_for_keys_that_cannot_be_asked_for() -> None:
    buffer, log, lost = await buffer_over()
    keys = AbsentKeys()
    buffer.codec = Codec(keys)
    buffer.offer(received(1))
    sending = asyncio.create_task(buffer.run())
    async with asyncio.timeout(10):
        while keys.refused < 2:
            await asyncio.sleep(0)
        keys.away = False
        while not await numbers_in(log):
            await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert lost == []


async def test_what_is_offered_at_once_is_one_write() -> None:
    buffer, log, _ = await buffer_over()
    sending = asyncio.create_task(buffer.run())
    for number in range(3):
        buffer.offer(received(number))
    async with asyncio.timeout(10):
        while len(await numbers_in(log)) < 3:
            await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert log.appends == 1


async def test_what_is_still_there_at_the_end_is_counted_as_lost() -> None:
    buffer, log, lost = await buffer_over()
    log.error = LogUnavailable("away")
    buffer.offer(received(1))
    await buffer.flush()
    assert sum(lost) == 1


async def test_a_fact_too_large_for_the_log_is_lost_alone() -> None:
    buffer, log, lost = await buffer_over()
    large = QueryAnswered(run_id=UUID(int=1), tenant="default", generation="g1", answered_at=NOW, response={"text": "x" * MAX_EVENT_BYTES})
    buffer.offer(large)
    buffer.offer(received(2))
    await buffer.flush()
    assert await numbers_in(log) == [2]
    assert sum(lost) == 1


async def test_a_fact_that_cannot_be_sealed_is_lost_alone() -> None:
    buffer, log, lost = await buffer_over()
    buffer.codec = Codec(LostKeys())
    buffer.offer(received(1))
    buffer.offer(received(2))
    await buffer.flush()
    assert await numbers_in(log) == [2]
    assert sum(lost) == 1


async def test_what_is_lost_is_counted_once_however_often_its_group_is_tried() -> None:
    buffer, log, lost = await buffer_over()
    buffer.codec = Codec(LostKeys())
    buffer.offer(received(2))
    buffer.offer(received(1))
    log.error = LogUnavailable("away")
    for _ in range(3):
        await buffer.flush()
        lost.remove(1)  # what still waits at the end is said each time
    log.error = None
    await buffer.flush()
    assert await numbers_in(log) == [2] and lost == [1]


async def test_whatever_the_log_raises_facts_go_on_when_it_takes_them_again() -> None:
    buffer, log, lost = await buffer_over()
    log.error = ConfigurationError("there is no such topic")
    buffer.offer(received(1))
    sending = asyncio.create_task(buffer.run())
    async with asyncio.timeout(10):
        while log.refused < 2:
            await asyncio.sleep(0)
        log.error = None
        while not await numbers_in(log):
            await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert lost == []


async def test_a_fact_nested_deeper_than_can_be_written_is_lost_alone() -> None:
    buffer, log, lost = await buffer_over()
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    buffer.offer(received(1).model_copy(update={"request": {"query": "x", "filters": deep}}))
    buffer.offer(received(2))
    await buffer.flush()
    assert await numbers_in(log) == [2] and sum(lost) == 1
