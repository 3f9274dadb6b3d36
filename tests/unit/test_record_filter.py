from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import InvalidRequest
from schemas.replay_requests import OffsetRange, ReplayRequest
from schemas.topics import Position, Record, StoredRecord
from services.replay.replay_worker import RecordFilter
from services.replay.service import (
    build_not_retained_error,
    find_missing_ranges,
    resolve_offset_range,
)
from tests.fakes.memory_log import MemoryLog

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWN, OTHER = UUID(int=1), UUID(int=2)


def make_record(
    topic: str = "chunked", *, at: datetime = NOON, value: Any = None, **headers: str
) -> StoredRecord:
    named = {f"ce_{name}": text.encode() for name, text in headers.items()}
    return StoredRecord(
        Record(topic, b"k", json.dumps(value or {}).encode(), named), Position(topic, 0, 7), at
    )


def filter_accepts(
    record: StoredRecord, *, collection: frozenset[UUID] | None = None, **chosen: Any
) -> bool:
    return RecordFilter.from_criteria(chosen, "acme", collection).matches(record)


def test_only_events_of_own_tenant_are_selected() -> None:
    assert filter_accepts(make_record(tenant="acme")) and not filter_accepts(
        make_record(tenant="globex")
    )
    assert not filter_accepts(
        make_record(tenant="globex", document=str(OWN)), document_ids=[str(OWN)]
    )


def test_raw_event_tenant_comes_from_payload() -> None:
    assert filter_accepts(make_record("raw", value={"tenant": "acme"})) and not filter_accepts(
        make_record("raw", value={"tenant": "globex"}, tenant="acme")
    )
    assert filter_accepts(
        make_record("raw", value={"data": {"tenant": "acme"}})
    ) and not filter_accepts(make_record("raw", value={"external_id": "nobody says"}))


@pytest.mark.parametrize(
    ("at", "taken"),
    [(timedelta(0), True), (timedelta(seconds=-1), False), (timedelta(hours=1), False)],
)
def test_period_includes_start_and_excludes_end(at: timedelta, taken: bool) -> None:
    period = {"since": NOON.isoformat(), "until": (NOON + timedelta(hours=1)).isoformat()}
    assert filter_accepts(make_record(at=NOON + at, tenant="acme"), **period) is taken


def test_document_and_collection_filters_are_intersected() -> None:
    record = make_record(tenant="acme", document=str(OWN))
    assert filter_accepts(record, document_ids=[str(OWN)], collection=frozenset({OWN, OTHER}))
    assert not filter_accepts(record, document_ids=[str(OWN)], collection=frozenset({OTHER}))
    assert not filter_accepts(record, collection=frozenset()) and not filter_accepts(
        make_record(tenant="acme"), collection=frozenset({OWN})
    )


async def read_offsets(ranges: list[OffsetRange]) -> dict[int, list[int]]:
    """Return the read offsets by partition."""
    log = MemoryLog()
    await log.create_topics({"chunked": 3}, retention_ms={})
    await log.append([Record("chunked", str(number).encode(), b"{}") for number in range(60)])
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    async for record in log.read(
        "chunked",
        *resolve_offset_range("chunked", await log.fetch_offset_bounds("chunked"), ranges),
    ):
        found[record.position.partition].append(record.position.offset)
    return found


async def test_all_records_are_read_without_offsets() -> None:
    assert sum(map(len, (await read_offsets([])).values())) == 60


async def test_unnamed_partitions_are_skipped() -> None:
    assert await read_offsets([OffsetRange(partition=1, start=2, end=5)]) == {
        0: [],
        1: [2, 3, 4],
        2: [],
    }


async def test_offsets_are_clamped_to_the_log() -> None:
    found = await read_offsets(
        [OffsetRange(partition=0, end=1), OffsetRange(partition=2, start=10_000)]
    )
    assert found == {0: [0], 1: [], 2: []}
    assert await read_offsets([OffsetRange(partition=0, start=5, end=2)]) == {0: [], 1: [], 2: []}
    assert resolve_offset_range(
        "chunked", {0: (0, 10)}, [OffsetRange(partition=0, start=10_000)]
    ) == ({0: 10}, {0: 10})


class ExpiringLog(MemoryLog):
    """A log that has expired all records before a moment, with a given or unknown retention."""

    def __init__(
        self, moments: list[datetime], since: datetime, retention: timedelta | None
    ) -> None:
        super().__init__(clock=iter(moments).__next__)
        self.expired_before, self.retention = since, retention

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        return self.retention

    async def fetch_expired_offsets(self, topic: str) -> dict[int, int]:
        expired_counts = (
            (number, [stored.appended_at < self.expired_before for stored in records].count(True))
            for number, records in enumerate(self.partitions(topic))
        )
        return {partition: count for partition, count in expired_counts if count}

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        expired = await self.fetch_expired_offsets(topic)
        return {
            partition: (expired.get(partition, 0), end)
            for partition, (_, end) in (await super().fetch_offset_bounds(topic)).items()
        }


@pytest.mark.parametrize(
    ("ages", "retention_hours", "since", "whole"),
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
        "older than the retention",
        "all expired, and older",
        "no time",
        "the first that is left is older",
        "unknown retention, younger records",
    ],
)
async def test_missing_range_is_reported_only_beyond_retention(
    ages: list[int], retention_hours: int | None, since: int | None, whole: bool
) -> None:
    """Ages of the records are in hours; records older than a day have expired."""
    log = ExpiringLog(
        [NOON - timedelta(hours=age) for age in ages],
        NOON - timedelta(days=1),
        timedelta(hours=retention_hours) if retention_hours else None,
    )
    await log.create_topics({"raw": 1}, retention_ms={})
    for _ in ages:
        await log.append([Record("raw", b"k", b"{}")])
    request = ReplayRequest(stage="receive", since=NOON - timedelta(hours=since) if since else None)
    assert await find_missing_ranges(log, "raw", request, NOON) == (
        [] if whole else [{"partition": 0, "start": 0, "end": 2}]
    )


@pytest.mark.parametrize(
    ("ranges", "named"),
    [
        ([], "(--offsets 0:4-9 --offsets 2:2-6)"),
        ([OffsetRange(partition=0, end=7)], "(--offsets 0:4-7)"),
        ([OffsetRange(partition=0, start=2, end=4), OffsetRange(partition=2)], "(--offsets 2:2-6)"),
        ([OffsetRange(partition=0, end=4), OffsetRange(partition=1)], "send the documents again"),
    ],
    ids=["all", "up to an end", "one is gone", "all are gone"],
)
def test_retention_error_suggests_remaining_offsets(ranges: list[OffsetRange], named: str) -> None:
    starts, ends = resolve_offset_range("raw", {0: (4, 9), 1: (5, 5), 2: (2, 6)}, ranges)
    error = build_not_retained_error("raw", [{"partition": 0, "start": 0, "end": 4}], starts, ends)
    assert named in error.remedy and error.remedy.count("--offsets") == named.count("--offsets")


def test_unknown_partition_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no partition 7"):
        resolve_offset_range("chunked", {0: (0, 10)}, [OffsetRange(partition=7)])
