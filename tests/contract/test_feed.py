"""What every feed promises: all that is appended, once, from any place that it has told."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.errors import InvalidRequest, PlaceAhead
from schemas.ports.feed import Feed, FeedRecord
from schemas.ports.log import EventLog
from schemas.records import Record
from sql import log as log_table
from sql.log import PgLog
from sql.log_feed import PgFeed
from sql.pool import close_pool, open_pool
from sql.statements import statement
from streams import feed as feed_of_offsets
from streams.feed import OffsetFeed
from streams.kafka.log import KafkaLog
from tests.contract.logs import LogCase, log_and_subscriber, open_case, where_offsets_come_again, where_records_expire

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

    async def lose(self, count: int, topic: str = "others") -> None:
        """What the topic's retention does: so many of its first records, if it has one partition, are gone."""
        if isinstance(self.log, KafkaLog):
            settings = self.log._settings
            place = TopicPartition(settings.topic_prefix + topic, 0, (await self.log.ends(topic))[0][0] + count)
            client = AdminClient({**settings.for_librdkafka()})
            for future in client.delete_records([place]).values():
                await asyncio.wrap_future(future)
        else:
            assert isinstance(self.log, PgLog), "in memory nothing expires"
            await self.log._pool.execute("update topics set retention_ms = 0 where topic = $1", topic)
            await self.log._pool.execute(
                "insert into log_readers (reader, topic, xact, position) select 'reader', topic, xact, position from events where topic = $1 "
                "order by xact, position limit 1 offset $2 on conflict (reader, topic) do update set xact = excluded.xact, position = excluded.position",
                topic,
                count - 1,
            )
            await self.log.expire()


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


async def test_a_page_holds_so_many_bytes_and_the_rest_follows(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where large payloads are not left out anyway."""
    monkeypatch.setattr(feed_of_offsets, "PAGE_BYTES", 1000)
    await case.log.append([Record(topic, str(number).encode(), bytes(400)) for number in range(10) for topic in TOPICS])
    place, found, more = await case.feed.first(), list[FeedRecord](), True
    while more:
        page = await case.feed.read(place, TOPICS, 100)
        assert sum(record.bytes for record in page.records) <= 1400 or isinstance(case.feed, PgFeed)
        place, more = page.cursor, page.more
        found += page.records
    assert len({one.stored.position for one in found}) == len(found) == 20


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


@pytest.mark.parametrize("text", ["", "x", "99999999999999999999.1", "-1.0", "1.2.-3", "1.2.3.4", "eJyrrgUAAXUA-Q", "é", *ODD_OFFSETS])
async def test_a_text_that_is_no_place_is_refused(case: Case, text: str) -> None:
    with pytest.raises(InvalidRequest, match="no place"):
        await case.feed.read(text, TOPICS, 10)


@where_records_expire
async def test_what_expired_unread_is_told_once_to_whoever_goes_on(case: Case) -> None:
    await case.append(*range(10), topic="others")
    read = await case.feed.read(await case.feed.first(), ["others"], 3)
    await case.lose(7)
    page = await case.feed.read(read.cursor, ["others"], 2)
    assert (numbers(page.records), page.missed, page.at_least) == ([7, 8], 4, False)
    for place, rest in ((page.start, [7, 8, 9]), (page.records[0].cursor, [8, 9]), (page.cursor, [9])):
        following = await case.feed.read(place, ["others"], 10)
        assert (numbers(following.records), following.missed) == (rest, 0)


@where_records_expire
async def test_where_all_that_was_unread_expired_an_empty_page_tells_it_once(case: Case) -> None:
    await case.append(1, 2, 3, topic="others")
    read = await case.feed.read(await case.feed.first(), TOPICS, 1)
    await case.lose(3)
    page = await case.feed.read(read.cursor, TOPICS, 10)
    assert (list(page.records), page.missed) == ([], 2)
    assert (await case.feed.read(page.cursor, TOPICS, 10)).missed == 0
    await case.append(4, topic="others")
    assert numbers((await case.feed.read(page.cursor, TOPICS, 10)).records) == [4]


@where_records_expire
async def test_each_loss_is_told_beside_what_other_topics_keep(case: Case) -> None:
    """Also to who goes on behind the first record of the page that told it."""
    await case.append(100, topic="others")
    await case.append(0)
    await case.append(*range(101, 105), topic="others")
    await case.append(1)
    read = await case.feed.read(await case.feed.first(), ["others"], 1)
    place = (await case.feed.read(read.cursor, ["things"], 0)).cursor
    await case.lose(3)
    page = await case.feed.read(place, TOPICS, 10)
    assert ({0, 1} >= {*numbers(page.records)} - {103, 104}) and page.missed == 2
    assert (await case.feed.read(page.records[0].cursor, TOPICS, 10)).missed == 0


@where_records_expire
async def test_what_was_read_and_then_expired_is_not_missed_nor_what_was_gone_at_the_beginning(case: Case) -> None:
    await case.append(*range(5), topic="others")
    read = await case.feed.read(await case.feed.first(), TOPICS, 5)
    now = await case.feed.now(TOPICS)
    await case.lose(4)
    for place in (read.cursor, now, await case.feed.first(), await case.feed.now(TOPICS)):
        assert (await case.feed.read(place, TOPICS, 10)).missed == 0
    assert numbers((await case.feed.read(await case.feed.first(), TOPICS, 10)).records) == [4]


@where_records_expire
async def test_no_record_tells_what_was_missed_all_the_same(case: Case) -> None:
    await case.append(*range(5), topic="others")
    place = (await case.feed.read(await case.feed.first(), TOPICS, 1)).cursor
    await case.lose(3)
    assert (await case.feed.read(place, TOPICS, 0)).missed == 2


@where_offsets_come_again
async def test_a_place_in_a_topic_that_was_made_anew_is_refused_with_a_way_out(case: Case) -> None:
    await case.append(1, 2, 3, topic="others")
    place = await case.feed.now(TOPICS)
    await case.log.delete_topics(["others"])
    await case.log.create_topics({"others": 1}, retention_ms={})
    await case.append(4, topic="others")
    for refused in (case.feed.read(place, TOPICS, 10), case.feed.behind(place, TOPICS, 10)):
        with pytest.raises(PlaceAhead, match=r"offset 3 of others\[0\], which ends at 1") as found:
            await refused
        assert found.value.code == "PLACE_AHEAD" and "begin" in found.value.remedy


async def test_what_a_place_says_of_a_topic_is_forgotten_with_the_topic(case: Case) -> None:
    await case.append(1, 2, 3, topic="others")
    place = await case.feed.now(TOPICS)
    await case.log.delete_topics(["others"])
    place = (await case.feed.read(place, TOPICS, 10)).cursor
    await case.log.create_topics({"others": 1}, retention_ms={})
    await case.append(4, topic="others")
    assert numbers((await case.feed.read(place, TOPICS, 10)).records) == [4]


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


async def test_on_postgres_a_place_that_the_log_has_not_come_to_is_refused(postgres: tuple[Case, str]) -> None:
    """As after an older copy of the data folder came back."""
    case, _ = postgres
    xact, position, told = map(int, (await case.feed.now(TOPICS)).split("."))
    for place in (f"{xact + 1000}.{position}.{told}", f"{xact}.7", f"{xact}.{position}.{told + 1}"):
        for refused in (case.feed.read(place, TOPICS, 10), case.feed.behind(place, TOPICS, 10)):
            with pytest.raises(PlaceAhead, match="ahead of this log"):
                await refused


async def test_on_postgres_places_of_earlier_versions_are_read(postgres: tuple[Case, str]) -> None:
    case, _ = postgres
    await case.append(1, 2)
    first, second = await case.all_after("0.-1")
    assert numbers([first, second]) == [1, 2]
    assert numbers(await case.all_after(first.cursor.rpartition(".")[0])) == [2]


async def test_on_postgres_outcomes_that_were_erased_before_somebody_read_them_are_told(postgres: tuple[Case, str]) -> None:
    case, dsn = postgres
    first = await case.feed.first()
    await case.log.append([Record("outcomes", None, b"1", {"ce_document": document}) for document in (b"kept", b"erased", b"erased", b"last")])
    pool = await open_pool(dsn, size=1, name="erasing")
    await pool.execute(statement("erase_outcomes"), ["erased"], [])
    await close_pool(pool)
    page = await case.feed.read(first, ["outcomes"], 10)
    assert (len(page.records), page.missed, page.at_least) == (2, 2, False)
    assert (await case.feed.read(page.records[0].cursor, ["outcomes"], 10)).missed == 0


async def test_on_postgres_what_is_known_of_losses_is_folded_and_never_told_too_high(postgres: tuple[Case, str], monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = postgres
    monkeypatch.setattr(log_table, "KEPT_GONE", 8)
    monkeypatch.setattr(log_table, "FOLDED_GONE", 8)
    await case.log.create_topics({"others": 1}, retention_ms={})
    await case.append(*range(80), topic="others")
    places = [one.cursor for one in await case.all_after(await case.feed.first())]
    await case.lose(40)
    for place, missed in zip(places, range(39, -1, -1), strict=False):
        page = await case.feed.read(place, TOPICS, 1)
        assert page.missed == missed or (page.at_least and missed > page.missed > missed - 8), (missed, page)
        assert missed > 8 or not page.at_least, "the latest are known one by one"
    await case.lose(40)
    found = [(await case.feed.read(place, TOPICS, 1)) for place in places]
    assert all(page.missed == missed or (page.at_least and 0 < page.missed < missed) for page, missed in zip(found, range(79, -1, -1), strict=True))
    assert isinstance(case.log, PgLog)
    kept = await case.log._pool.fetchrow("select count(*) as rows, sum(records) as records from gone_events")
    assert kept and kept["rows"] <= 16 and kept["records"] == 80
    await case.log.delete_topics(["others"])
    assert await case.log._pool.fetchval("select count(*) from gone_events") == 0
