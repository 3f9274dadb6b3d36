from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from anabranch.desk.feed import PAGE, EventFeed
from anabranch.desk.log_entries import Entries
from api.feeds import Told
from schemas.errors import DatabaseUnavailable, InvalidRequest, LogUnavailable, PlaceAhead, TransientError
from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id
from schemas.ports.feed import Page
from schemas.principals import Principal
from schemas.records import Record
from streams.codec import Codec
from streams.feed import OffsetFeed
from streams.memory import MemoryLog
from streams.topics import partition_counts
from tests.callers import LOCAL
from tests.unit.api_services import FakeDocuments

DOCUMENT = content_id("document", "default", "", "a")


class One:
    """Generations, of which there is one."""

    generation = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="live")

    async def live(self) -> Generation | None:
        return self.generation

    async def get(self, name: str) -> Generation | None:
        return self.generation

    async def undropped(self) -> list[Generation]:
        return [self.generation]


class Nothing:
    async def of_document(self, tenant: str, document_id: UUID, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        return [], None


class Forgetful(MemoryLog):
    """Its records go when it is told so."""

    gone = 0

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        return {partition: (min(self.gone, end), end) for partition, (_, end) in (await super().ends(topic)).items()}


class World:
    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC), **options: Any) -> None:
        self.log = Forgetful(clock)
        self.statuses: list[dict[str, Any]] = [{"state": "running"}]
        self.feed = EventFeed(OffsetFeed(self.log), Entries(Codec(), FakeDocuments()), One(), Nothing(), self._status, poll_s=0, **options)

    async def _status(self, caller: Principal, document_id: UUID) -> dict[str, Any] | None:
        return self.statuses[-1]

    async def say(self, *kinds: str, topic: str = "accepted", tenant: str | None = "default", document: UUID = DOCUMENT) -> None:
        await self.log.append([record(kind, topic, tenant, document) for kind in kinds])


def record(kind: str, topic: str, tenant: str | None, document: UUID) -> Record:
    headers = {"ce_specversion": b"1.0", "ce_id": str(UUID(int=1)).encode(), "ce_source": b"anabranch/test", "ce_type": kind.encode()}
    headers |= {"ce_document": str(document).encode()} | ({"ce_tenant": tenant.encode()} if tenant else {})
    return Record(topic, str(document).encode(), b"{}", headers)


async def world(**options: Any) -> World:
    made = World(**options)
    await made.log.create_topics(partition_counts(2), retention_ms={})
    return made


async def told(stream: Any, count: int) -> list[Told]:
    return [await anext(stream) for _ in range(count)]


async def test_a_stream_tells_what_comes_and_says_goodbye_when_the_server_stops() -> None:
    here = await world()
    await here.say("before.v1")
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    assert (await anext(stream)).event == "open"
    await here.say("one.v1", "two.v1")
    assert [one.event for one in await told(stream, 2)] == ["one.v1", "two.v1"]
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    here.feed.stop()
    assert (await waiting).event == "bye"
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert here.feed.open == 0


@pytest.mark.parametrize("kind", ["dropped", "bye", "x.v1\n\nevent: bye", "x.v1\n", "a b.v1", "é.v1", ".v", ""])
async def test_what_a_producer_calls_its_event_is_taken_for_no_message_of_the_stream(kind: str) -> None:
    here = await world()
    stream = here.feed.follow(LOCAL, after="begin", topics=["raw"], document=None)
    await anext(stream)
    await here.say(kind, "order-placed_2.v10", topic="raw")
    foreign, own = await told(stream, 2)
    assert (foreign.event, foreign.data["type"]) == ("unreadable", kind)
    assert own.event == "order-placed_2.v10"
    await stream.aclose()


async def test_a_stream_goes_on_behind_the_last_message_that_was_read() -> None:
    here = await world()
    first = here.feed.follow(LOCAL, after="begin", topics=None, document=None)
    await here.say("one.v1", "two.v1", "three.v1")
    seen = await told(first, 3)
    await first.aclose()
    await here.say("four.v1")
    second = here.feed.follow(LOCAL, after=seen[-1].cursor, topics=None, document=None)
    assert [one.event for one in await told(second, 3)] == ["open", "three.v1", "four.v1"]
    await second.aclose()
    assert here.feed.open == 0


async def test_only_ones_own_tenant_topics_and_document_are_told() -> None:
    here = await world()
    other = content_id("document", "default", "", "b")
    await here.say("mine.v1")
    await here.say("theirs.v1", tenant="stranger")
    await here.say("another.v1", document=other)
    await here.say("elsewhere.v1", topic="chunked")
    page = await here.feed.page(LOCAL, after="begin", topics=["accepted"], document=DOCUMENT, limit=10)
    assert [item.type for item in page.items] == ["mine.v1"] and page.end
    assert {item.type for item in (await here.feed.page(LOCAL, after="begin", topics=None, document=None, limit=10)).items} == {
        "mine.v1", "another.v1", "elsewhere.v1",
    }  # fmt: skip


async def test_what_was_appended_before_a_moment_is_passed_over_and_a_key_is_told() -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    moments = iter([noon - timedelta(seconds=1), noon, noon + timedelta(seconds=1)])
    here = await world(clock=lambda: next(moments))
    await here.say("before.v1", "then.v1", "later.v1")
    page = await here.feed.page(LOCAL, after="begin", topics=None, document=None, limit=10, since=noon)
    assert [(item.type, item.key) for item in page.items] == [("then.v1", str(DOCUMENT)), ("later.v1", str(DOCUMENT))]


async def test_a_generations_own_topics_belong_to_the_plain_ones() -> None:
    class Two(One):
        async def undropped(self) -> list[Generation]:
            return [self.generation, Generation(name="g2", config=IndexConfig(), how={}, topics={"embedded": "embedded.g2"})]

    here = await world()
    await here.log.create_topics({"embedded.g2": 1}, retention_ms={})
    here.feed.generations = Two()
    await here.say("chunks.embedded.v1", topic="embedded.g2")
    page = await here.feed.page(LOCAL, after="begin", topics=["embedded"], document=None, limit=10)
    assert [item.topic for item in page.items] == ["embedded.g2"]


async def test_pages_join_without_a_gap_or_a_repeat() -> None:
    here = await world()
    await here.say(*(f"kind{n}.v1" for n in range(25)))
    seen, after = [], "begin"
    while not (page := await here.feed.page(LOCAL, after=after, topics=None, document=None, limit=4)).end:
        seen += [item.type for item in page.items]
        after = page.next
    assert sorted([*seen, *(item.type for item in page.items)], key=str) == sorted(f"kind{n}.v1" for n in range(25))


async def test_a_reader_too_far_behind_is_told_how_many_it_missed_and_goes_on_from_now() -> None:
    here = await world(most_behind=50)
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    opened = await anext(stream)
    await here.say(*["old.v1"] * (PAGE + 300))
    first = await told(stream, PAGE)
    dropped = await anext(stream)
    assert {one.event for one in first} == {"old.v1"}
    assert (dropped.event, dropped.data["missed"], dropped.data["after"]) == ("dropped", 300, first[-1].cursor)
    await here.say("new.v1")
    assert (await anext(stream)).event == "new.v1"
    later = await here.feed.page(LOCAL, after=dropped.data["after"], topics=None, document=None, limit=500)
    assert len(later.items) == 301 and opened.cursor
    await stream.aclose()


@pytest.mark.parametrize(("counted", "missed", "at_least"), [(100, 100, True), (1_000, 300, False)])
async def test_of_more_events_than_are_counted_it_is_said_that_they_are_more(
    counted: int, missed: int, at_least: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.desk.feed.COUNTED", counted)
    here = await world(most_behind=50)
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    await anext(stream)
    await here.say(*["old.v1"] * (PAGE + 300))
    await told(stream, PAGE)
    dropped = await anext(stream)
    assert (dropped.data["missed"], dropped.data["at_least"]) == (missed, at_least)
    await stream.aclose()


async def test_what_the_log_no_longer_keeps_is_told_once_and_before_what_it_keeps() -> None:
    here = await world()
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    opened = await anext(stream)
    await here.say("one.v1", "two.v1", "three.v1", "four.v1")
    here.log.gone = 3
    dropped, four = await told(stream, 2)
    assert (dropped.event, dropped.data) == ("dropped", {"missed": 3, "at_least": False, "after": opened.cursor})
    assert four.event == "four.v1"
    for place in (dropped.cursor, four.cursor):
        again = here.feed.follow(LOCAL, after=place, topics=None, document=None)
        await anext(again)
        await here.say("five.v1")
        assert (await anext(again)).event in ("four.v1", "five.v1")
        await again.aclose()
    pages = [await here.feed.page(LOCAL, after=place or "", topics=None, document=None, limit=10) for place in (opened.cursor, dropped.cursor)]
    assert [page.missed for page in pages] == [3, 0]
    await stream.aclose()


async def test_a_reader_that_stood_still_while_the_log_forgot_is_told_all_that_it_missed() -> None:
    here = await world(most_behind=50)
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    await anext(stream)
    await here.say(*["old.v1"] * (PAGE + 300))
    read = await told(stream, 10)
    here.log.gone = PAGE + 100
    rest = await told(stream, PAGE - 10)
    dropped = await anext(stream)
    assert {one.event for one in [*read, *rest]} == {"old.v1"}
    assert (dropped.event, dropped.data["missed"]) == ("dropped", 300)
    await here.say("new.v1")
    assert (await anext(stream)).event == "new.v1"
    await stream.aclose()


async def made_anew(here: World) -> None:
    await here.log.delete_topics(["accepted"])
    await here.log.create_topics(partition_counts(2), retention_ms={})


async def test_a_reader_whose_place_is_of_another_log_is_told_and_goes_on_from_now() -> None:
    here = await world()
    await here.say("one.v1", "two.v1")
    place = (await here.feed.page(LOCAL, after="begin", topics=None, document=None, limit=10)).next
    await made_anew(here)
    await here.say("before.v1")
    with pytest.raises(PlaceAhead, match="which ends at"):
        await here.feed.page(LOCAL, after=place, topics=None, document=None, limit=10)
    stream = here.feed.follow(LOCAL, after=place, topics=None, document=None)
    opened, reset = await told(stream, 2)
    assert (opened.event, reset.event, reset.data["code"], reset.data["after"]) == ("open", "reset", "PLACE_AHEAD", place)
    assert "begin" in reset.data["remedy"] and reset.cursor == opened.cursor != place
    await here.say("after.v1")
    assert (await anext(stream)).event == "after.v1"
    await stream.aclose()


async def test_a_log_that_is_made_anew_under_a_stream_is_told_once() -> None:
    here = await world()
    await here.say("one.v1", "two.v1")
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    opened = await anext(stream)
    await made_anew(here)
    assert ((reset := await anext(stream)).event, reset.data["after"]) == ("reset", opened.cursor)
    await here.say("after.v1")
    assert (await anext(stream)).event == "after.v1"
    await stream.aclose()


async def test_a_document_is_followed_with_its_status_whenever_it_changes() -> None:
    here = await world()
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=DOCUMENT)
    assert [one.event for one in await told(stream, 2)] == ["open", "status"]
    here.statuses.append({"state": "searchable"})
    status = await anext(stream)
    assert (status.event, status.data, status.cursor) == ("status", {"state": "searchable"}, None)
    await stream.aclose()


async def test_trouble_with_the_log_is_told_and_the_stream_goes_on() -> None:
    here = await world()
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    await anext(stream)

    async def away(after: str, topics: Any, limit: int) -> Page:
        here.feed.feed = OffsetFeed(here.log)
        raise LogUnavailable("the broker is away")

    here.feed.feed = type("Away", (), {"read": staticmethod(away), "behind": staticmethod(here.feed.feed.behind)})()
    assert ((message := await anext(stream)).event, message.data["code"]) == ("error", "LOG_UNAVAILABLE")
    await here.say("again.v1")
    assert (await anext(stream)).event == "again.v1"
    await stream.aclose()


async def test_trouble_with_the_status_of_a_document_swallows_no_event_and_repeats_none() -> None:
    here = await world()
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=DOCUMENT)
    await told(stream, 2)
    good = here.feed.status

    async def away(tenant: str, document_id: UUID) -> dict[str, Any] | None:
        here.feed.status = good
        raise DatabaseUnavailable("Postgres is away")

    here.feed.status = away
    await here.say("one.v1", "two.v1", "three.v1")
    here.statuses.append({"state": "searchable"})
    assert [message.event for message in await told(stream, 5)] == ["one.v1", "two.v1", "three.v1", "error", "status"]
    await here.say("four.v1")
    assert (await anext(stream)).event == "four.v1"
    await stream.aclose()


async def test_a_stream_says_goodbye_in_the_middle_of_a_page_and_the_next_one_goes_on_right_behind() -> None:
    here = await world()
    await here.say(*(f"kind{number}.v1" for number in range(PAGE)))
    stream = here.feed.follow(LOCAL, after="begin", topics=None, document=None)
    seen = await told(stream, 4)
    here.feed.stop()
    rest = [message async for message in stream]
    assert len(rest) <= 2 and rest[-1].event == "bye"
    here.feed.closing.clear()
    last = [message.cursor for message in [*seen, *rest] if message.cursor][-1]
    again = here.feed.follow(LOCAL, after=last, topics=None, document=None)
    there = [message.event for message in [*seen[1:], *rest[:-1], *(await told(again, PAGE - 3 - len(rest) + 2))[1:]]]
    assert len(there) == len(set(there)) == PAGE
    await again.aclose()


async def test_one_stream_too_many_is_told_to_come_back() -> None:
    here = await world(most_streams=1)
    stream = here.feed.follow(LOCAL, after=None, topics=None, document=None)
    await anext(stream)
    with pytest.raises(TransientError, match="1 streams are open"):
        await anext(here.feed.follow(LOCAL, after=None, topics=None, document=None))
    await stream.aclose()


async def test_a_place_that_is_none_is_refused_before_anything_is_told() -> None:
    here = await world()
    with pytest.raises(InvalidRequest, match="no place"):
        await anext(here.feed.follow(LOCAL, after="nowhere", topics=None, document=None))
    assert here.feed.open == 0
