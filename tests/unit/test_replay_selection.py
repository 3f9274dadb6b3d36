from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from anabranch.background.selection import Selection
from anabranch.desk.replays import limits, not_retained, not_there
from api.replays import Offsets, ReplayRequest
from schemas.errors import InvalidRequest
from schemas.records import Position, Record, StoredRecord
from streams.memory import MemoryLog

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWN, OTHER = UUID(int=1), UUID(int=2)


def stored(topic: str = "chunked", *, at: datetime = NOON, value: Any = None, **headers: str) -> StoredRecord:
    named = {f"ce_{name}": text.encode() for name, text in headers.items()}
    return StoredRecord(Record(topic, b"k", json.dumps(value or {}).encode(), named), Position(topic, 0, 7), at)


def takes(record: StoredRecord, *, collection: frozenset[UUID] | None = None, **chosen: Any) -> bool:
    return Selection.of(chosen, "acme", collection).takes(record)


def test_only_ones_own_events_are_taken_whoever_names_the_document() -> None:
    assert takes(stored(tenant="acme")) and not takes(stored(tenant="globex"))
    assert not takes(stored(tenant="globex", document=str(OWN)), document_ids=[str(OWN)])


def test_a_producers_event_is_its_tenants_whatever_its_headers_claim() -> None:
    assert takes(stored("raw", value={"tenant": "acme"})) and not takes(stored("raw", value={"tenant": "globex"}, tenant="acme"))
    assert takes(stored("raw", value={"data": {"tenant": "acme"}})) and not takes(stored("raw", value={"external_id": "nobody says"}))


@pytest.mark.parametrize(("at", "taken"), [(timedelta(0), True), (timedelta(seconds=-1), False), (timedelta(hours=1), False)])
def test_a_period_begins_with_its_first_moment_and_ends_before_its_last(at: timedelta, taken: bool) -> None:
    period = {"since": NOON.isoformat(), "until": (NOON + timedelta(hours=1)).isoformat()}
    assert takes(stored(at=NOON + at, tenant="acme"), **period) is taken


def test_of_documents_and_collection_only_what_is_in_both_is_taken() -> None:
    record = stored(tenant="acme", document=str(OWN))
    assert takes(record, document_ids=[str(OWN)], collection=frozenset({OWN, OTHER}))
    assert not takes(record, document_ids=[str(OWN)], collection=frozenset({OTHER}))
    assert not takes(record, collection=frozenset()) and not takes(stored(tenant="acme"), collection=frozenset({OWN}))


async def read(asked: list[Offsets]) -> dict[int, list[int]]:
    """Partition → the offsets that are read of it."""
    log = MemoryLog()
    await log.create_topics({"chunked": 3}, retention_ms={})
    await log.append([Record("chunked", str(number).encode(), b"{}") for number in range(60)])
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    async for record in log.read("chunked", *limits("chunked", await log.ends("chunked"), asked)):
        found[record.position.partition].append(record.position.offset)
    return found


async def test_without_offsets_all_is_read() -> None:
    assert sum(map(len, (await read([])).values())) == 60


async def test_partitions_that_are_not_named_are_left_out() -> None:
    assert await read([Offsets(partition=1, start=2, end=5)]) == {0: [], 1: [2, 3, 4], 2: []}


async def test_offsets_beyond_the_log_are_cut_to_what_is_there() -> None:
    found = await read([Offsets(partition=0, end=1), Offsets(partition=2, start=10_000)])
    assert found == {0: [0], 1: [], 2: []}
    assert await read([Offsets(partition=0, start=5, end=2)]) == {0: [], 1: [], 2: []}
    assert limits("chunked", {0: (0, 10)}, [Offsets(partition=0, start=10_000)]) == ({0: 10}, {0: 10})


class Forgetful(MemoryLog):
    """Forgets all that came before a moment, as a topic that keeps its records for a day, or for as long as nobody says."""

    def __init__(self, moments: list[datetime], since: datetime, kept: timedelta | None) -> None:
        super().__init__(clock=iter(moments).__next__)
        self.since, self.kept = since, kept

    async def keeps_at_least(self, topic: str) -> timedelta | None:
        return self.kept

    async def expired(self, topic: str) -> dict[int, int]:
        gone = ((number, [stored.appended_at < self.since for stored in held].count(True)) for number, held in enumerate(self.partitions(topic)))
        return {partition: count for partition, count in gone if count}

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        expired = await self.expired(topic)
        return {partition: (expired.get(partition, 0), end) for partition, (_, end) in (await super().ends(topic)).items()}


@pytest.mark.parametrize(
    ("ages", "kept", "since", "whole"),
    [
        ([30, 28, 1], 24, 5, True),
        ([30, 28], 24, 5, True),
        ([30, 28, 1], 24, 26, False),
        ([30, 28], 24, 26, False),
        ([30, 28, 1], 24, None, False),
        ([30, 28, 3], None, 2, True),
        ([30, 28, 1], None, 5, False),
    ],
    ids=[
        "idle",
        "all expired",
        "older than what is kept",
        "all expired, and older",
        "no time",
        "the first that is left is older",
        "nobody says, and it is younger",
    ],
)
async def test_by_time_nothing_is_missing_of_what_is_younger_than_retention(ages: list[int], kept: int | None, since: int | None, whole: bool) -> None:
    """Ages in hours, of all that came; what is older than a day is gone."""
    log = Forgetful([NOON - timedelta(hours=age) for age in ages], NOON - timedelta(days=1), timedelta(hours=kept) if kept else None)
    await log.create_topics({"raw": 1}, retention_ms={})
    for _ in ages:
        await log.append([Record("raw", b"k", b"{}")])
    wanted = ReplayRequest(stage="receive", since=NOON - timedelta(hours=since) if since else None)
    assert await not_there(log, "raw", wanted, NOON) == ([] if whole else [{"partition": 0, "start": 0, "end": 2}])


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ([], "(--offsets 0:4-9 --offsets 2:2-6)"),
        ([Offsets(partition=0, end=7)], "(--offsets 0:4-7)"),
        ([Offsets(partition=0, start=2, end=4), Offsets(partition=2)], "(--offsets 2:2-6)"),
        ([Offsets(partition=0, end=4), Offsets(partition=1)], "Nothing of it is left"),
    ],
    ids=["all", "up to an end", "one is gone", "all are gone"],
)
def test_whoever_asks_for_what_is_gone_is_told_what_of_it_is_left(asked: list[Offsets], named: str) -> None:
    starts, ends = limits("raw", {0: (4, 9), 1: (5, 5), 2: (2, 6)}, asked)
    error = not_retained("raw", [{"partition": 0, "start": 0, "end": 4}], starts, ends)
    assert named in error.remedy and error.remedy.count("--offsets") == named.count("--offsets")


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no partition 7"):
        limits("chunked", {0: (0, 10)}, [Offsets(partition=7)])
