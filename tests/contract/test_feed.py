"""What every feed promises: all that is appended, once, from any place that it has told."""

from __future__ import annotations

import base64
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from schemas.errors import InvalidRequest
from schemas.ports.feed import Feed, FeedRecord
from schemas.ports.log import EventLog
from schemas.records import Record
from sql.log import PgLog
from sql.log_feed import PgFeed
from sql.pool import close_pool, open_pool
from streams.feed import OffsetFeed
from tests.contract.logs import LogCase, log_and_subscriber, open_case

__all__ = ["log_and_subscriber", "open_case"]

TOPICS = ("things", "others")


@dataclass
class Case:
    log: EventLog
    feed: Feed

    async def append(self, *numbers: int, topic: str = "things") -> None:
        await self.log.append([Record(topic, str(number).encode(), str(number).encode()) for number in numbers])

    async def all_after(self, place: str, limit: int = 100, topics: Sequence[str] = TOPICS) -> list[FeedRecord]:
        found: list[FeedRecord] = []
        while (page := await self.feed.read(place, topics, limit)).records:
            assert len(page.records) <= limit and page.cursor == page.records[-1].cursor
            found += page.records
            place = page.cursor
        return found


def numbers(records: Sequence[FeedRecord]) -> list[int]:
    return sorted(int(one.stored.record.value or b"") for one in records)


@pytest.fixture
async def case(log_and_subscriber: LogCase) -> Case:
    log = log_and_subscriber.log
    await log.create_topics({"things": 4, "others": 1, "unwatched": 1}, retention_ms={})
    return Case(log, PgFeed(log._pool) if isinstance(log, PgLog) else OffsetFeed(log))


async def test_everything_comes_once_whatever_the_size_of_a_page(case: Case) -> None:
    await case.append(*range(30))
    await case.append(*range(100, 110), topic="others")
    for limit in (1, 7, 100):
        found = await case.all_after(await case.feed.first(), limit)
        assert numbers(found) == [*range(30), *range(100, 110)]
        assert len({one.stored.position for one in found}) == 40


async def test_reading_goes_on_behind_any_record(case: Case) -> None:
    await case.append(*range(20))
    found = await case.all_after(await case.feed.first())
    for place, one in enumerate(found):
        rest = {record.stored.position for record in await case.all_after(one.cursor)}
        assert rest == {record.stored.position for record in found[place + 1 :]}


async def test_now_is_behind_what_is_there_and_before_what_comes(case: Case) -> None:
    await case.append(1, 2, 3)
    now = await case.feed.now(TOPICS)
    assert await case.all_after(now) == []
    await case.append(4)
    await case.append(5, topic="others")
    assert numbers(await case.all_after(now)) == [4, 5]


async def test_only_the_topics_that_are_asked_for_come(case: Case) -> None:
    await case.append(1)
    await case.append(2, topic="unwatched")
    assert numbers(await case.all_after(await case.feed.first())) == [1]
    assert numbers(await case.all_after(await case.feed.first(), topics=["unwatched"])) == [2]


async def test_a_topic_that_is_not_there_is_passed_over(case: Case) -> None:
    await case.append(1)
    assert numbers(await case.all_after(await case.feed.first(), topics=["things", "never.made"])) == [1]


async def test_what_is_behind_is_counted_up_to_a_bound(case: Case) -> None:
    await case.append(*range(10))
    first = await case.feed.first()
    assert (await case.feed.behind(first, TOPICS, 100), await case.feed.behind(first, TOPICS, 4)) == (10, 4)
    assert await case.feed.behind(await case.feed.now(TOPICS), TOPICS, 100) == 0


ODD_OFFSETS = [base64.urlsafe_b64encode(zlib.compress(f'{{"things":{{"0":{offset}}}}}'.encode())).decode() for offset in ("1e400", "-1", "9" * 30, '"x"')]
"""As a place of Kafka is written."""


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "99999999999999999999.1", "-1.0", "eJyrrgUAAXUA-Q", "é", *ODD_OFFSETS])
async def test_a_text_that_is_no_place_is_refused(case: Case, text: str) -> None:
    with pytest.raises(InvalidRequest, match="no place"):
        await case.feed.read(text, TOPICS, 10)


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[tuple[Case, str]]:
    pool = await open_pool(database, size=4, name="feed")
    log = PgLog(pool)
    yield Case(log, PgFeed(pool)), database
    await log.close()
    await close_pool(pool)


async def test_on_postgres_an_event_of_a_slow_transaction_is_not_passed_by(postgres: tuple[Case, str]) -> None:
    case, dsn = postgres
    slow = await open_pool(dsn, size=1, name="slow")
    first = await case.feed.first()
    async with slow.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into events (topic, key, headers, value) values ('things', 'a', '{}', '1')")
        await case.append(2)
        before = await case.all_after(first)
        await transaction.commit()
    await close_pool(slow)
    place = before[-1].cursor if before else first
    assert numbers([*before, *await case.all_after(place)]) == [1, 2]
