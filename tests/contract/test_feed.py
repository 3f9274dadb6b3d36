"""Contract of a feed: every appended event once, from any cursor it returned."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.errors import CursorAhead, InvalidRequest
from schemas.ports.feed import FeedRecord, RecordFeed
from schemas.ports.log import EventLog
from schemas.topics import Record
from sql.database import close_pool, load_query, open_pool, use_pool
from sql.log import event_log as log_table
from sql.log.event_log import PgLog
from sql.log.feed import PgFeed
from streams import offset_feed as feed_of_offsets
from streams.kafka.kafka_log import KafkaLog
from streams.offset_feed import OffsetFeed
from tests.support.log_cases import (
    LogCase,
    log_and_subscriber,
    on_expiring_logs,
    on_offset_reusing_logs,
    open_case,
)

__all__ = ["log_and_subscriber", "open_case"]

TOPICS = ("things", "others")


@dataclass
class FeedCase:
    log: EventLog
    feed: RecordFeed

    async def append(self, *numbers: int, topic: str = "things") -> None:
        await self.log.append(
            [Record(topic, str(number).encode(), str(number).encode()) for number in numbers]
        )

    async def read_all_after(
        self, place: str, limit: int = 100, topics: Sequence[str] = TOPICS
    ) -> list[FeedRecord]:
        found: list[FeedRecord] = []
        while (page := await self.feed.read_page(place, topics, limit)).records:
            assert len(page.records) <= limit and page.cursor == page.records[-1].cursor
            found += page.records
            place = page.cursor
        return found

    async def expire_first(self, count: int, topic: str = "others") -> None:
        """Expire the first `count` records of the topic, which must have one partition."""
        if isinstance(self.log, KafkaLog):
            settings = self.log._settings
            place = TopicPartition(
                settings.topic_prefix + topic,
                0,
                (await self.log.fetch_offset_bounds(topic))[0][0] + count,
            )
            client = AdminClient({**settings.to_librdkafka_config()})
            for future in client.delete_records([place]).values():
                await asyncio.wrap_future(future)
        else:
            assert isinstance(self.log, PgLog), "in memory nothing expires"
            await self.log._pool.execute(
                "update topics set retention_ms = 0 where topic = $1", topic
            )
            await self.log._pool.execute(
                "insert into log_readers (reader, topic, xact, position) "
                "select 'reader', topic, xact, position from events where topic = $1 "
                "order by xact, position limit 1 offset $2 on conflict (reader, topic) do update "
                "set xact = excluded.xact, position = excluded.position",
                topic,
                count - 1,
            )
            await self.log.expire()


def read_numbers(records: Sequence[FeedRecord]) -> list[int]:
    return sorted(int(one.stored_record.record.value or b"") for one in records)


@pytest.fixture
async def case(log_and_subscriber: LogCase) -> FeedCase:
    log = log_and_subscriber.log
    await log.create_topics({"things": 4, "others": 1, "unwatched": 1}, retention_ms={})
    return FeedCase(log, PgFeed(log._pool) if isinstance(log, PgLog) else OffsetFeed(log))


async def test_every_record_is_read_once_for_any_page_size(case: FeedCase) -> None:
    await case.append(*range(30))
    await case.append(*range(100, 110), topic="others")
    for limit in (1, 7, 100):
        found = await case.read_all_after(await case.feed.fetch_begin_cursor(), limit)
        assert read_numbers(found) == [*range(30), *range(100, 110)]
        assert len({one.stored_record.position for one in found}) == 40


async def test_page_is_limited_in_bytes(case: FeedCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where large payloads are not left out anyway."""
    monkeypatch.setattr(feed_of_offsets, "PAGE_BYTES", 1000)
    await case.log.append(
        [
            Record(topic, str(number).encode(), bytes(400))
            for number in range(10)
            for topic in TOPICS
        ]
    )
    place, found, more = await case.feed.fetch_begin_cursor(), list[FeedRecord](), True
    while more:
        page = await case.feed.read_page(place, TOPICS, 100)
        assert sum(record.size_bytes for record in page.records) <= 1400 or isinstance(
            case.feed, PgFeed
        )
        place, more = page.cursor, page.has_more
        found += page.records
    assert len({one.stored_record.position for one in found}) == len(found) == 20


async def test_reading_resumes_after_any_record(case: FeedCase) -> None:
    await case.append(*range(20))
    found = await case.read_all_after(await case.feed.fetch_begin_cursor())
    for place, one in enumerate(found):
        rest = {record.stored_record.position for record in await case.read_all_after(one.cursor)}
        assert rest == {record.stored_record.position for record in found[place + 1 :]}


async def test_now_cursor_skips_existing_records(case: FeedCase) -> None:
    await case.append(1, 2, 3)
    now = await case.feed.fetch_end_cursor(TOPICS)
    assert await case.read_all_after(now) == []
    await case.append(4)
    await case.append(5, topic="others")
    assert read_numbers(await case.read_all_after(now)) == [4, 5]


async def test_only_requested_topics_are_read_and_missing_ones_skipped(case: FeedCase) -> None:
    await case.append(1)
    await case.append(2, topic="unwatched")
    begin = await case.feed.fetch_begin_cursor()
    for topics, expected in ((TOPICS, [1]), (["unwatched"], [2]), (["things", "never.made"], [1])):
        assert read_numbers(await case.read_all_after(begin, topics=topics)) == expected


async def test_lag_is_counted_up_to_limit(case: FeedCase) -> None:
    await case.append(*range(10))
    first = await case.feed.fetch_begin_cursor()
    assert (
        await case.feed.count_following(first, TOPICS, 100),
        await case.feed.count_following(first, TOPICS, 4),
    ) == (10, 4)
    assert (
        await case.feed.count_following(await case.feed.fetch_end_cursor(TOPICS), TOPICS, 100) == 0
    )


INVALID_OFFSETS = [
    base64.urlsafe_b64encode(zlib.compress(f'{{"things":{{"0":{offset}}}}}'.encode())).decode()
    for offset in ("1e400", "-1", "9" * 30, '"x"')
]
"""As a place of Kafka is written."""
INVALID_PLACES = ("", "x", "99999999999999999999.1", "-1.0", "1.2.-3", "1.2.3.4", "eJyrrgUAAXUA-Q")


async def test_invalid_cursor_is_rejected(case: FeedCase) -> None:
    for text in (*INVALID_PLACES, "é", *INVALID_OFFSETS):
        with pytest.raises(InvalidRequest, match="Invalid cursor"):
            await case.feed.read_page(text, TOPICS, 10)


@on_expiring_logs
async def test_expired_unread_records_are_reported_once(case: FeedCase) -> None:
    await case.append(*range(10), topic="others")
    read = await case.feed.read_page(await case.feed.fetch_begin_cursor(), ["others"], 3)
    await case.expire_first(7)
    page = await case.feed.read_page(read.cursor, ["others"], 2)
    assert (read_numbers(page.records), page.missed_count, page.missed_is_lower_bound) == (
        [7, 8],
        4,
        False,
    )
    for place, rest in (
        (page.start_cursor, [7, 8, 9]),
        (page.records[0].cursor, [8, 9]),
        (page.cursor, [9]),
    ):
        following = await case.feed.read_page(place, ["others"], 10)
        assert (read_numbers(following.records), following.missed_count) == (rest, 0)


@on_expiring_logs
async def test_empty_page_reports_expired_records_once(case: FeedCase) -> None:
    await case.append(1, 2, 3, topic="others")
    read = await case.feed.read_page(await case.feed.fetch_begin_cursor(), TOPICS, 1)
    await case.expire_first(3)
    page = await case.feed.read_page(read.cursor, TOPICS, 10)
    assert (list(page.records), page.missed_count) == ([], 2)
    assert (await case.feed.read_page(page.cursor, TOPICS, 10)).missed_count == 0
    await case.append(4, topic="others")
    assert read_numbers((await case.feed.read_page(page.cursor, TOPICS, 10)).records) == [4]


@on_expiring_logs
async def test_expired_records_are_reported_alongside_other_topics(case: FeedCase) -> None:
    """Also to who goes on behind the first record of the page that told it."""
    await case.append(100, topic="others")
    await case.append(0)
    await case.append(*range(101, 105), topic="others")
    await case.append(1)
    read = await case.feed.read_page(await case.feed.fetch_begin_cursor(), ["others"], 1)
    place = (await case.feed.read_page(read.cursor, ["things"], 0)).cursor
    await case.expire_first(3)
    page = await case.feed.read_page(place, TOPICS, 10)
    assert ({0, 1} >= {*read_numbers(page.records)} - {103, 104}) and page.missed_count == 2
    assert (await case.feed.read_page(page.records[0].cursor, TOPICS, 10)).missed_count == 0


@on_expiring_logs
async def test_expired_records_already_read_are_not_reported(case: FeedCase) -> None:
    await case.append(*range(5), topic="others")
    read = await case.feed.read_page(await case.feed.fetch_begin_cursor(), TOPICS, 5)
    now = await case.feed.fetch_end_cursor(TOPICS)
    await case.expire_first(4)
    for place in (
        read.cursor,
        now,
        await case.feed.fetch_begin_cursor(),
        await case.feed.fetch_end_cursor(TOPICS),
    ):
        assert (await case.feed.read_page(place, TOPICS, 10)).missed_count == 0
    assert read_numbers(
        (await case.feed.read_page(await case.feed.fetch_begin_cursor(), TOPICS, 10)).records
    ) == [4]


@on_expiring_logs
async def test_zero_limit_still_reports_missed_records(case: FeedCase) -> None:
    await case.append(*range(5), topic="others")
    place = (await case.feed.read_page(await case.feed.fetch_begin_cursor(), TOPICS, 1)).cursor
    await case.expire_first(3)
    assert (await case.feed.read_page(place, TOPICS, 0)).missed_count == 2


@on_offset_reusing_logs
async def test_cursor_beyond_recreated_topic_is_rejected_with_remedy(case: FeedCase) -> None:
    await case.append(1, 2, 3, topic="others")
    place = await case.feed.fetch_end_cursor(TOPICS)
    await case.log.delete_topics(["others"])
    await case.log.create_topics({"others": 1}, retention_ms={})
    await case.append(4, topic="others")
    for refused in (
        case.feed.read_page(place, TOPICS, 10),
        case.feed.count_following(place, TOPICS, 10),
    ):
        with pytest.raises(CursorAhead, match=r"offset 3 of others\[0\], which ends at 1") as found:
            await refused
        assert found.value.code == "CURSOR_AHEAD" and "begin" in found.value.remedy


async def test_cursor_drops_deleted_topic(case: FeedCase) -> None:
    await case.append(1, 2, 3, topic="others")
    place = await case.feed.fetch_end_cursor(TOPICS)
    await case.log.delete_topics(["others"])
    place = (await case.feed.read_page(place, TOPICS, 10)).cursor
    await case.log.create_topics({"others": 1}, retention_ms={})
    await case.append(4, topic="others")
    assert read_numbers((await case.feed.read_page(place, TOPICS, 10)).records) == [4]


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[tuple[FeedCase, str]]:
    pool = await open_pool(database, size=4, name="feed")
    log = PgLog(pool)
    yield FeedCase(log, PgFeed(pool)), database
    await log.close()
    await close_pool(pool)


async def test_postgres_feed_includes_slow_transactions(postgres: tuple[FeedCase, str]) -> None:
    case, dsn = postgres
    slow = await open_pool(dsn, size=1, name="slow")
    first = await case.feed.fetch_begin_cursor()
    async with slow.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "insert into events (topic, key, headers, value) values ('things', 'a', '{}', '1')"
        )
        await case.append(2)
        before = await case.read_all_after(first)
        await transaction.commit()
    await close_pool(slow)
    place = before[-1].cursor if before else first
    assert read_numbers([*before, *await case.read_all_after(place)]) == [1, 2]


async def test_postgres_cursor_ahead_of_log_is_rejected(postgres: tuple[FeedCase, str]) -> None:
    """As after an older copy of the data folder came back."""
    case, dsn = postgres
    # An open transaction keeps the head where it is, whatever else runs on the server.
    async with (
        use_pool(dsn, size=1, name="open") as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await connection.execute("select pg_current_xact_id()")
        head = await case.feed.fetch_end_cursor(TOPICS)
        xact, position, event_count = map(int, head.split("."))
        for place in (
            f"{xact + 1000}.{position}.{event_count}",
            f"{xact}.7",
            f"{xact}.{position}.{event_count + 1}",
        ):
            with pytest.raises(CursorAhead, match="ahead of this log"):
                await case.feed.read_page(place, TOPICS, 10)
            with pytest.raises(CursorAhead, match="ahead of this log"):
                await case.feed.count_following(place, TOPICS, 10)


async def test_postgres_reads_cursors_of_earlier_versions(postgres: tuple[FeedCase, str]) -> None:
    case, _ = postgres
    await case.append(1, 2)
    first, second = await case.read_all_after("0.-1")
    assert read_numbers([first, second]) == [1, 2]
    assert read_numbers(await case.read_all_after(first.cursor.rpartition(".")[0])) == [2]


async def test_postgres_reports_erased_unread_outcomes_as_missed(
    postgres: tuple[FeedCase, str],
) -> None:
    case, dsn = postgres
    first = await case.feed.fetch_begin_cursor()
    await case.log.append(
        [
            Record("outcomes", None, b"1", {"ce_document": document})
            for document in (b"kept", b"erased", b"erased", b"last")
        ]
    )
    pool = await open_pool(dsn, size=1, name="erasing")
    await pool.execute(load_query("erase_outcomes"), ["erased"], [])
    await close_pool(pool)
    page = await case.feed.read_page(first, ["outcomes"], 10)
    assert (len(page.records), page.missed_count, page.missed_is_lower_bound) == (2, 2, False)
    assert (await case.feed.read_page(page.records[0].cursor, ["outcomes"], 10)).missed_count == 0


async def test_postgres_compacted_expired_ranges_never_overcount(
    postgres: tuple[FeedCase, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, _ = postgres
    monkeypatch.setattr(log_table, "UNFOLDED_RANGES", 8)
    monkeypatch.setattr(log_table, "RANGES_PER_FOLD", 8)
    await case.log.create_topics({"others": 1}, retention_ms={})
    await case.append(*range(80), topic="others")
    places = [one.cursor for one in await case.read_all_after(await case.feed.fetch_begin_cursor())]
    await case.expire_first(40)
    for place, missed in zip(places, range(39, -1, -1), strict=False):
        page = await case.feed.read_page(place, TOPICS, 1)
        assert page.missed_count == missed or (
            page.missed_is_lower_bound and missed > page.missed_count > missed - 8
        ), (missed, page)
        assert missed > 8 or not page.missed_is_lower_bound, "the latest are known one by one"
    await case.expire_first(40)
    found = [(await case.feed.read_page(place, TOPICS, 1)) for place in places]
    assert all(
        page.missed_count == missed
        or (page.missed_is_lower_bound and 0 < page.missed_count < missed)
        for page, missed in zip(found, range(79, -1, -1), strict=True)
    )
    assert isinstance(case.log, PgLog)
    totals = await case.log._pool.fetchrow(
        "select count(*) as rows, sum(records) as records from expired_ranges"
    )
    assert totals and totals["rows"] <= 16 and totals["records"] == 80
    await case.log.delete_topics(["others"])
    assert await case.log._pool.fetchval("select count(*) from expired_ranges") == 0
