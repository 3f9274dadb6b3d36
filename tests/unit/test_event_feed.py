from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from api.app import create_app
from processors import TOPICS
from schemas.errors import (
    CursorAhead,
    DatabaseUnavailable,
    InvalidRequest,
    LogUnavailable,
    TransientError,
)
from schemas.event_feed import FeedFilter, FeedMessage
from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id
from schemas.ports.feed import FeedPage
from schemas.principals import Principal
from schemas.topics import count_partitions
from services.monitoring.event_feed import PAGE_SIZE, EventFeed, LogEntryBuilder
from streams.codec import Codec
from streams.offset_feed import OffsetFeed
from tests.fakes.event_feed import DOCUMENT_ID, SingleGeneration, make_record
from tests.fakes.memory_log import MemoryLog
from tests.support.api_client import LOCAL_CALLER
from tests.unit.api_fakes import DOCUMENT_ID as API_DOCUMENT_ID
from tests.unit.api_fakes import STAGE_BODY, FakeDocuments, MemoryFeed, make_services


class TruncatableLog(MemoryLog):
    """A log whose oldest records expire at a given offset."""

    start_offset = 0

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {
            partition: (min(self.start_offset, end), end)
            for partition, (_, end) in (await super().fetch_offset_bounds(topic)).items()
        }


class FeedHarness:
    def __init__(
        self, clock: Callable[[], datetime] = lambda: datetime.now(UTC), **options: Any
    ) -> None:
        self.log = TruncatableLog(clock)
        self.statuses: list[dict[str, Any]] = [{"state": "running"}]
        self.feed = EventFeed(
            OffsetFeed(self.log),
            LogEntryBuilder(Codec(), FakeDocuments()),
            SingleGeneration(),
            self._status,
            poll_s=0,
            **options,
        )

    async def _status(self, caller: Principal, document_id: UUID) -> dict[str, Any] | None:
        return self.statuses[-1]

    async def append(
        self,
        *kinds: str,
        topic: str = "accepted",
        tenant: str | None = "default",
        document: UUID = DOCUMENT_ID,
    ) -> None:
        await self.log.append([make_record(kind, topic, tenant, document) for kind in kinds])


async def make_harness(**options: Any) -> FeedHarness:
    harness = FeedHarness(**options)
    await harness.log.create_topics(count_partitions(TOPICS, 2), retention_ms={})
    return harness


async def read_messages(stream: Any, count: int) -> list[FeedMessage]:
    return [await anext(stream) for _ in range(count)]


async def test_stream_delivers_events_and_ends_on_shutdown() -> None:
    harness = await make_harness()
    await harness.append("before.v1")
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    assert (await anext(stream)).event == "open"
    await harness.append("one.v1", "two.v1")
    assert [one.event for one in await read_messages(stream, 2)] == ["one.v1", "two.v1"]
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    harness.feed.close_streams()
    assert (await waiting).event == "bye"
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert harness.feed.open_streams == 0


async def test_stream_polls_often_after_a_message() -> None:
    harness = await make_harness()
    harness.feed.poll_s = 3600
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    await anext(stream)
    for kind in ("one.v1", "two.v1"):
        waiting = asyncio.ensure_future(anext(stream))
        # Until it waits for the next poll.
        await asyncio.sleep(0.05)
        await harness.append(kind)
        assert (await asyncio.wait_for(waiting, 30)).event == kind
    await stream.aclose()


@pytest.mark.parametrize(
    "kind", ["dropped", "bye", "x.v1\n\nevent: bye", "x.v1\n", "a b.v1", "é.v1", ".v", ""]
)
async def test_producer_event_type_cannot_forge_stream_messages(kind: str) -> None:
    harness = await make_harness()
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(["raw"]), after="begin")
    await anext(stream)
    await harness.append(kind, "order-placed_2.v10", topic="raw")
    foreign, own = await read_messages(stream, 2)
    assert (foreign.event, foreign.data["type"]) == ("unreadable", kind)
    assert own.event == "order-placed_2.v10"
    await stream.aclose()


async def test_stream_resumes_after_last_read_cursor() -> None:
    harness = await make_harness()
    first = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after="begin")
    await harness.append("one.v1", "two.v1", "three.v1")
    seen = await read_messages(first, 3)
    await first.aclose()
    await harness.append("four.v1")
    second = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=seen[-1].cursor)
    assert [one.event for one in await read_messages(second, 3)] == ["open", "three.v1", "four.v1"]
    await second.aclose()
    assert harness.feed.open_streams == 0


async def test_feed_is_filtered_by_tenant_topic_and_document() -> None:
    harness = await make_harness()
    other = content_id("document", "default", "", "b")
    await harness.append("mine.v1")
    await harness.append("theirs.v1", tenant="stranger")
    await harness.append("another.v1", document=other)
    await harness.append("elsewhere.v1", topic="chunked")
    page = await harness.feed.read_page(
        LOCAL_CALLER, FeedFilter(["accepted"], DOCUMENT_ID), after="begin", limit=10
    )
    assert [item.type for item in page.items] == ["mine.v1"] and page.end
    page = await harness.feed.read_page(LOCAL_CALLER, FeedFilter(), after="begin", limit=10)
    assert {item.type for item in page.items} == {"mine.v1", "another.v1", "elsewhere.v1"}


async def test_since_skips_older_events() -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    moments = iter([noon - timedelta(seconds=1), noon, noon + timedelta(seconds=1)])
    harness = await make_harness(clock=lambda: next(moments))
    await harness.append("before.v1", "then.v1", "later.v1")
    page = await harness.feed.read_page(
        LOCAL_CALLER, FeedFilter(), after="begin", limit=10, since=noon
    )
    assert [(item.type, item.key) for item in page.items] == [
        ("then.v1", str(DOCUMENT_ID)),
        ("later.v1", str(DOCUMENT_ID)),
    ]


async def test_generation_topics_are_included_in_base_topic() -> None:
    class Two(SingleGeneration):
        async def fetch_undropped(self) -> list[Generation]:
            return [
                self.generation,
                Generation(
                    name="g2", config=IndexConfig(), how={}, topics={"embedded": "embedded.g2"}
                ),
            ]

    harness = await make_harness()
    await harness.log.create_topics({"embedded.g2": 1}, retention_ms={})
    harness.feed.generations = Two()
    await harness.append("chunks.embedded.v1", topic="embedded.g2")
    page = await harness.feed.read_page(
        LOCAL_CALLER, FeedFilter(["embedded"]), after="begin", limit=10
    )
    assert [item.topic for item in page.items] == ["embedded.g2"]


async def test_pages_have_no_gaps_or_duplicates() -> None:
    harness = await make_harness()
    await harness.append(*(f"kind{n}.v1" for n in range(25)))
    seen, after = [], "begin"
    while not (
        page := await harness.feed.read_page(LOCAL_CALLER, FeedFilter(), after=after, limit=4)
    ).end:
        seen += [item.type for item in page.items]
        after = page.next
    assert sorted([*seen, *(item.type for item in page.items)], key=str) == sorted(
        f"kind{n}.v1" for n in range(25)
    )


async def test_slow_stream_reports_dropped_count_and_resumes_at_end() -> None:
    harness = await make_harness(max_backlog=50)
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    opened = await anext(stream)
    await harness.append(*["old.v1"] * (PAGE_SIZE + 300))
    first = await read_messages(stream, PAGE_SIZE)
    dropped = await anext(stream)
    assert {one.event for one in first} == {"old.v1"}
    assert (dropped.event, dropped.data["missed"], dropped.data["after"]) == (
        "dropped",
        300,
        first[-1].cursor,
    )
    await harness.append("new.v1")
    assert (await anext(stream)).event == "new.v1"
    later = await harness.feed.read_page(
        LOCAL_CALLER, FeedFilter(), after=dropped.data["after"], limit=500
    )
    assert len(later.items) == 301 and opened.cursor
    await stream.aclose()


@pytest.mark.parametrize(("counted", "missed", "at_least"), [(100, 100, True), (1_000, 300, False)])
async def test_large_dropped_count_is_reported_as_at_least(
    counted: int, missed: int, at_least: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.monitoring.event_feed.MAX_COUNTED", counted)
    harness = await make_harness(max_backlog=50)
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    await anext(stream)
    await harness.append(*["old.v1"] * (PAGE_SIZE + 300))
    await read_messages(stream, PAGE_SIZE)
    dropped = await anext(stream)
    assert (dropped.data["missed"], dropped.data["at_least"]) == (missed, at_least)
    await stream.aclose()


async def test_expired_records_are_reported_once_as_dropped() -> None:
    harness = await make_harness()
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    opened = await anext(stream)
    await harness.append("one.v1", "two.v1", "three.v1", "four.v1")
    harness.log.start_offset = 3
    dropped, four = await read_messages(stream, 2)
    assert (dropped.event, dropped.data) == (
        "dropped",
        {"missed": 3, "at_least": False, "after": opened.cursor},
    )
    assert four.event == "four.v1"
    for place in (dropped.cursor, four.cursor):
        again = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=place)
        await anext(again)
        await harness.append("five.v1")
        assert (await anext(again)).event in ("four.v1", "five.v1")
        await again.aclose()
    pages = [
        await harness.feed.read_page(LOCAL_CALLER, FeedFilter(), after=place or "", limit=10)
        for place in (opened.cursor, dropped.cursor)
    ]
    assert [page.missed for page in pages] == [3, 0]
    await stream.aclose()


async def test_stalled_stream_reports_all_expired_records() -> None:
    harness = await make_harness(max_backlog=50)
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    await anext(stream)
    await harness.append(*["old.v1"] * (PAGE_SIZE + 300))
    read = await read_messages(stream, 10)
    harness.log.start_offset = PAGE_SIZE + 100
    rest = await read_messages(stream, PAGE_SIZE - 10)
    dropped = await anext(stream)
    assert {one.event for one in [*read, *rest]} == {"old.v1"}
    assert (dropped.event, dropped.data["missed"]) == ("dropped", 300)
    await harness.append("new.v1")
    assert (await anext(stream)).event == "new.v1"
    await stream.aclose()


async def recreate_topics(harness: FeedHarness) -> None:
    await harness.log.delete_topics(["accepted"])
    await harness.log.create_topics(count_partitions(TOPICS, 2), retention_ms={})


async def test_cursor_of_another_log_resets_stream() -> None:
    harness = await make_harness()
    await harness.append("one.v1", "two.v1")
    place = (await harness.feed.read_page(LOCAL_CALLER, FeedFilter(), after="begin", limit=10)).next
    await recreate_topics(harness)
    await harness.append("before.v1")
    with pytest.raises(CursorAhead, match="which ends at"):
        await harness.feed.read_page(LOCAL_CALLER, FeedFilter(), after=place, limit=10)
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=place)
    opened, reset = await read_messages(stream, 2)
    assert (opened.event, reset.event, reset.data["code"], reset.data["after"]) == (
        "open",
        "reset",
        "CURSOR_AHEAD",
        place,
    )
    assert "begin" in reset.data["remedy"] and reset.cursor == opened.cursor != place
    await harness.append("after.v1")
    assert (await anext(stream)).event == "after.v1"
    await stream.aclose()


async def test_recreated_log_resets_open_stream_once() -> None:
    harness = await make_harness()
    await harness.append("one.v1", "two.v1")
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    opened = await anext(stream)
    await recreate_topics(harness)
    assert ((reset := await anext(stream)).event, reset.data["after"]) == ("reset", opened.cursor)
    await harness.append("after.v1")
    assert (await anext(stream)).event == "after.v1"
    await stream.aclose()


async def test_document_stream_reports_status_changes() -> None:
    harness = await make_harness()
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(document=DOCUMENT_ID), after=None)
    assert [one.event for one in await read_messages(stream, 2)] == ["open", "status"]
    harness.statuses.append({"state": "searchable"})
    status = await anext(stream)
    assert (status.event, status.data, status.cursor) == ("status", {"state": "searchable"}, None)
    await stream.aclose()


async def test_log_outage_is_reported_and_stream_continues() -> None:
    harness = await make_harness()
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None)
    await anext(stream)

    async def away(after: str, topics: Any, limit: int) -> FeedPage:
        harness.feed.feed = OffsetFeed(harness.log)
        raise LogUnavailable("the broker is away")

    harness.feed.feed = type(
        "Away",
        (),
        {
            "read_page": staticmethod(away),
            "count_following": staticmethod(harness.feed.feed.count_following),
        },
    )()
    assert ((message := await anext(stream)).event, message.data["code"]) == (
        "error",
        "LOG_UNAVAILABLE",
    )
    await harness.append("again.v1")
    assert (await anext(stream)).event == "again.v1"
    await stream.aclose()


async def test_status_outage_neither_loses_nor_repeats_events() -> None:
    harness = await make_harness()
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(document=DOCUMENT_ID), after=None)
    await read_messages(stream, 2)
    good = harness.feed.fetch_status

    async def away(tenant: str, document_id: UUID) -> dict[str, Any] | None:
        harness.feed.fetch_status = good
        raise DatabaseUnavailable("Postgres is away")

    harness.feed.fetch_status = away
    await harness.append("one.v1", "two.v1", "three.v1")
    harness.statuses.append({"state": "searchable"})
    assert [message.event for message in await read_messages(stream, 5)] == [
        "one.v1",
        "two.v1",
        "three.v1",
        "error",
        "status",
    ]
    await harness.append("four.v1")
    assert (await anext(stream)).event == "four.v1"
    await stream.aclose()


async def test_stream_stopped_mid_page_resumes_exactly() -> None:
    harness = await make_harness()
    await harness.append(*(f"kind{number}.v1" for number in range(PAGE_SIZE)))
    stream = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after="begin")
    seen = await read_messages(stream, 4)
    harness.feed.close_streams()
    rest = [message async for message in stream]
    assert len(rest) <= 2 and rest[-1].event == "bye"
    harness.feed.closing.clear()
    last = [message.cursor for message in [*seen, *rest] if message.cursor][-1]
    again = harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=last)
    event_types = [
        message.event
        for message in [
            *seen[1:],
            *rest[:-1],
            *(await read_messages(again, PAGE_SIZE - 3 - len(rest) + 2))[1:],
        ]
    ]
    assert len(event_types) == len(set(event_types)) == PAGE_SIZE
    await again.aclose()


async def test_streams_of_a_tenant_leave_some_to_others() -> None:
    harness = await make_harness(max_streams=4)
    other = replace(LOCAL_CALLER, tenant="other")
    streams = [
        harness.feed.follow(caller, FeedFilter(), after=None)
        for caller in (*[LOCAL_CALLER] * 3, other)
    ]
    for stream in streams[:3]:
        await anext(stream)
    with pytest.raises(TransientError, match="limit of 3 open streams"):
        await anext(harness.feed.follow(LOCAL_CALLER, FeedFilter(), after=None))
    await anext(streams[3])
    with pytest.raises(TransientError):
        await anext(harness.feed.follow(other, FeedFilter(), after=None))
    for stream in streams:
        await stream.aclose()
    assert harness.feed.open_streams == 0 and not harness.feed.open_by_tenant


async def test_invalid_cursor_is_refused_before_streaming() -> None:
    harness = await make_harness()
    with pytest.raises(InvalidRequest, match="Invalid cursor"):
        await anext(harness.feed.follow(LOCAL_CALLER, FeedFilter(), after="nowhere"))
    assert harness.feed.open_streams == 0


@pytest.fixture
def feed() -> MemoryFeed:
    return MemoryFeed(
        [
            FeedMessage(event="document.chunked.v1", data={"topic": "chunked"}, cursor="7.1"),
            FeedMessage(event="status", data={"state": "running"}),
        ]
    )


@pytest.fixture
async def http(feed: MemoryFeed) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(
        create_app(make_services(event_feed=feed)), raise_app_exceptions=False
    )
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_event_stream_is_sse_with_cursor_ids(
    http: httpx2.AsyncClient, feed: MemoryFeed
) -> None:
    asyncio.get_running_loop().call_soon(feed.close_streams)
    response = await http.get("/v1/stream", headers={"Last-Event-ID": "6.0"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text == (
        'event: open\ndata: {"after": "6.0"}\nid: 6.0\nretry: 1000\n\n'
        'event: document.chunked.v1\ndata: {"topic": "chunked"}\nid: 7.1\n\n'
        'event: status\ndata: {"state": "running"}\n\n'
        "event: bye\ndata: {}\n\n"
    )


async def test_since_outside_utc_range_is_rejected(http: httpx2.AsyncClient) -> None:
    response = await http.get("/v1/events", params={"since": "0001-01-01T00:00+14:00"})
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_REQUEST")


async def test_unknown_topic_is_rejected(http: httpx2.AsyncClient) -> None:
    response = await http.get("/v1/events", params={"topics": "accepted,acepted"})
    assert (response.status_code, response.json()["detail"]) == (422, "Unknown topic acepted.")


async def test_event_page_starts_at_beginning_or_given_cursor(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/v1/events")).json() == {
        "items": [],
        "next": "begin",
        "end": True,
        "missed": 0,
        "at_least": False,
    }
    assert (await http.get("/v1/events", params={"after": "7.1"})).json()["next"] == "7.1"


async def test_document_events_are_listed_and_unknown_document_is_404(
    http: httpx2.AsyncClient,
) -> None:
    assert (await http.get(f"/v1/documents/{API_DOCUMENT_ID}/events")).json()["items"] == [
        {**STAGE_BODY, "revision": 1, "generation": None, "part": 1}
    ]
    assert (
        await http.get("/v1/documents/00000000-0000-0000-0000-000000000001/events")
    ).status_code == 404
