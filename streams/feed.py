"""A log of ordered partitions as it grows: Kafka, and the one in memory."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from schemas.errors import ConfigurationError, InvalidRequest, PlaceAhead
from schemas.ports.feed import FeedRecord, Page
from schemas.ports.log import EventLog
from schemas.records import StoredRecord

PAGE_BYTES = 4_000_000
"""Of payloads, about: a reader who takes nothing keeps a page in memory."""
Offsets = dict[str, dict[int, int]]
"""Topic → partition → the next offset. What is not named is read from its first record."""


@dataclass(frozen=True, slots=True)
class OffsetFeed:
    """See `schemas.ports.feed.Feed`. Only for logs whose offsets grow in reading order within a partition."""

    log: EventLog

    async def first(self) -> str:
        return _text({})

    async def now(self, topics: Sequence[str]) -> str:
        return _text({topic: {partition: end for partition, (_, end) in (await self._ends(topic)).items()} for topic in topics})

    async def read(self, after: str, topics: Sequence[str], limit: int) -> Page:
        offsets, records = _offsets(after), list[FeedRecord]()
        ends = {topic: await self._ends(topic) for topic in topics}
        missed = sum(_passed_over(offsets, topic, there) for topic, there in ends.items())
        start = _text(offsets)
        for topic, there in ends.items():
            ranges = _ranges(there, offsets.get(topic, {}), limit - len(records))
            room = PAGE_BYTES - sum(record.bytes for record in records)
            if room > 0 and any(start < end for start, end in ranges.values()):
                records += await self._read(topic, ranges, offsets, limit - len(records), room)
        is_full = len(records) >= limit or sum(record.bytes for record in records) >= PAGE_BYTES
        return Page(records, start, _text(offsets), missed, more=is_full)

    async def behind(self, after: str, topics: Sequence[str], most: int) -> int:
        offsets, total = _offsets(after), 0
        for topic in topics:
            there = await self._ends(topic)
            _passed_over(offsets, topic, there)
            known = offsets.get(topic, {})
            total += sum(end - known.get(partition, first) for partition, (first, end) in there.items())
        return min(total, most)

    async def _ends(self, topic: str) -> dict[int, tuple[int, int]]:
        try:
            return await self.log.ends(topic)
        except ConfigurationError as error:
            if error.code != "NO_TOPIC":
                raise
            return {}

    async def _read(self, topic: str, ranges: Mapping[int, tuple[int, int]], offsets: Offsets, most: int, room: int) -> list[FeedRecord]:
        """At most so many, and about so many bytes (`room`); what was read of each partition is its beginning, so the rest comes with the next page."""
        place = offsets.setdefault(topic, {})
        place.update({partition: start for partition, (start, _) in ranges.items()})
        found = list[FeedRecord]()
        starts, ends = {p: start for p, (start, _) in ranges.items()}, {p: end for p, (_, end) in ranges.items()}
        async with aclosing(cast(AsyncGenerator[StoredRecord, None], self.log.read(topic, starts, ends))) as records:
            async for stored in records:
                place[stored.position.partition] = stored.position.offset + 1
                found.append(FeedRecord(stored, _text(offsets), len(stored.record.value or b"")))
                room -= found[-1].bytes
                if len(found) >= most or room <= 0:
                    return found
        # The last offsets of a partition may hold no record.
        place.update(ends)
        return found


def _passed_over(offsets: Offsets, topic: str, ends: Mapping[int, tuple[int, int]]) -> int:
    """Move a place on to the first records that are there; how many it passes over. What it says of a topic that is gone is forgotten: another may come to bear its
    name. Raises PlaceAhead."""
    if not ends:
        offsets.pop(topic, None)
    known = offsets.get(topic, {})
    moved = {partition: max(first, known[partition]) for partition, (first, _) in ends.items() if partition in known}
    if ahead := [partition for partition, offset in moved.items() if offset > ends[partition][1]]:
        raise PlaceAhead(f"the place is before offset {known[ahead[0]]} of {topic}[{ahead[0]}], which ends at {ends[ahead[0]][1]}")
    lost = sum(moved.values()) - sum(known[partition] for partition in moved)
    known.update(moved)
    return lost


def _ranges(ends: Mapping[int, tuple[int, int]], known: Mapping[int, int], limit: int) -> dict[int, tuple[int, int]]:
    """What follows in each partition. Those without news are named too: left out, all of them would be read."""
    starts = {partition: known.get(partition, first) for partition, (first, _) in ends.items()}
    return {partition: (start, min(ends[partition][1], start + limit)) for partition, start in starts.items()}


def _text(offsets: Offsets) -> str:
    named = {topic: {str(partition): offset for partition, offset in sorted(places.items())} for topic, places in sorted(offsets.items()) if places}
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(named, separators=(",", ":")).encode())).decode()


def _offset(given: object) -> int:
    if not isinstance(given, int) or not 0 <= given < 2**63:
        raise ValueError(f"{given!r} is no offset")
    return given


def _offsets(text: str) -> Offsets:
    try:
        named = json.loads(zlib.decompress(base64.urlsafe_b64decode(text.encode())))
        return {str(topic): {int(partition): _offset(offset) for partition, offset in places.items()} for topic, places in named.items()}
    except (ValueError, zlib.error, AttributeError, TypeError) as error:
        raise InvalidRequest(f"{text[:80]!r} is no place in this log", remedy="Give one that it has told, or begin or now.") from error
