"""`RecordFeed` over logs with ordered partitions: Kafka and the in-memory log."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from schemas.errors import ConfigurationError, CursorAhead, InvalidRequest
from schemas.ports.feed import EventCount, FeedPage, FeedRecord
from schemas.ports.log import EventLog

PAGE_BYTES = 4_000_000
"""Approximate payload bytes of a page; each idle reader holds one page in memory."""
Offsets = dict[str, dict[int, int]]
"""Topic → partition → next offset. Partitions without an entry are read from the start."""


@dataclass(frozen=True, slots=True)
class OffsetFeed:
    """A `RecordFeed` for logs whose offsets grow in reading order within a partition."""

    log: EventLog

    async def fetch_begin_cursor(self) -> str:
        return _format_cursor({})

    async def fetch_end_cursor(self, topics: Sequence[str]) -> str:
        return _format_cursor(
            {
                topic: {
                    partition: end
                    for partition, (_, end) in (await self._fetch_ends(topic)).items()
                }
                for topic in topics
            }
        )

    async def read_page(self, after: str, topics: Sequence[str], limit: int) -> FeedPage:
        offsets, records = _parse_cursor(after), list[FeedRecord]()
        ends_by_topic = {topic: await self._fetch_ends(topic) for topic in topics}
        missed_count = sum(
            _skip_expired(offsets, topic, partition_ends)
            for topic, partition_ends in ends_by_topic.items()
        )
        start_cursor = _format_cursor(offsets)
        for topic, partition_ends in ends_by_topic.items():
            # Topics in turn: later ones get what the earlier ones leave of the page. Partitions
            # without new records get an empty range: `read` would read those left out from their
            # start.
            ranges = {}
            for partition, (first_offset, end) in partition_ends.items():
                start = offsets.get(topic, {}).get(partition, first_offset)
                ranges[partition] = (start, min(end, start + limit - len(records)))
            remaining_bytes = PAGE_BYTES - sum(record.size_bytes for record in records)
            if remaining_bytes > 0 and any(start < end for start, end in ranges.values()):
                records += await self._read_topic(
                    topic, ranges, offsets, limit - len(records), remaining_bytes
                )
        is_full = (
            len(records) >= limit or sum(record.size_bytes for record in records) >= PAGE_BYTES
        )
        return FeedPage(
            records, start_cursor, _format_cursor(offsets), missed_count, has_more=is_full
        )

    async def count_by_time(
        self,
        topics: Sequence[str],
        *,
        since: datetime,
        until: datetime,
        bucket_s: int,
        tenant: str | None,
    ) -> Sequence[EventCount]:
        # Kafka finds offsets by time, but not those of one tenant.
        raise InvalidRequest(
            "Kafka does not count events by time and tenant.",
            code="NO_EVENT_COUNTS",
            remedy="Read the events with GET /v1/events, or query the metrics of the brokers.",
        )

    async def count_following(self, after: str, topics: Sequence[str], limit: int) -> int:
        offsets, total = _parse_cursor(after), 0
        for topic in topics:
            partition_ends = await self._fetch_ends(topic)
            _skip_expired(offsets, topic, partition_ends)
            topic_offsets = offsets.get(topic, {})
            total += sum(
                end - topic_offsets.get(partition, first_offset)
                for partition, (first_offset, end) in partition_ends.items()
            )
        return min(total, limit)

    async def _fetch_ends(self, topic: str) -> dict[int, tuple[int, int]]:
        try:
            return await self.log.fetch_offset_bounds(topic)
        except ConfigurationError as error:
            # A topic of a dropped generation is empty, not an error; the cursor stays valid.
            if error.code != "NO_TOPIC":
                raise
            return {}

    async def _read_topic(
        self,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        offsets: Offsets,
        max_records: int,
        max_bytes: int,
    ) -> list[FeedRecord]:
        """Read up to `max_records` records of about `max_bytes` and advance `offsets`."""
        topic_offsets = offsets.setdefault(topic, {})
        # Before the loop: each record's cursor must hold the offset of every partition.
        topic_offsets.update({partition: start for partition, (start, _) in ranges.items()})
        feed_records = list[FeedRecord]()
        starts = {p: start for p, (start, _) in ranges.items()}
        ends = {p: end for p, (_, end) in ranges.items()}
        async with aclosing(self.log.read(topic, starts, ends)) as records:
            async for stored_record in records:
                topic_offsets[stored_record.position.partition] = stored_record.position.offset + 1
                feed_records.append(
                    FeedRecord(
                        stored_record,
                        _format_cursor(offsets),
                        len(stored_record.record.value or b""),
                    )
                )
                max_bytes -= feed_records[-1].size_bytes
                # Each record has its own cursor, so the next page continues here.
                if len(feed_records) >= max_records or max_bytes <= 0:
                    return feed_records
        # The last offsets of a partition may be transaction markers, which are no records.
        topic_offsets.update(ends)
        return feed_records


def _skip_expired(offsets: Offsets, topic: str, ends: Mapping[int, tuple[int, int]]) -> int:
    """Advance `offsets` past expired records and return how many were skipped.

    Raises CursorAhead if an offset lies behind the end of its partition.
    """
    if not ends:
        offsets.pop(topic, None)  # the topic was deleted; a new one may get its name
    topic_offsets = offsets.get(topic, {})
    moved_offsets = {
        partition: max(first_offset, topic_offsets[partition])
        for partition, (first_offset, _) in ends.items()
        if partition in topic_offsets
    }
    if partitions_ahead := [
        partition for partition, offset in moved_offsets.items() if offset > ends[partition][1]
    ]:
        partition = partitions_ahead[0]
        raise CursorAhead(
            f"The cursor is ahead of this log: offset {topic_offsets[partition]} of "
            f"{topic}[{partition}], which ends at {ends[partition][1]}."
        )
    skipped_count = sum(moved_offsets.values()) - sum(
        topic_offsets[partition] for partition in moved_offsets
    )
    topic_offsets.update(moved_offsets)
    return skipped_count


def _format_cursor(offsets: Offsets) -> str:
    offsets_by_topic = {
        topic: {str(partition): offset for partition, offset in sorted(topic_offsets.items())}
        for topic, topic_offsets in sorted(offsets.items())
        if topic_offsets
    }
    return base64.urlsafe_b64encode(
        # Compressed, since it holds an offset for every partition of every topic.
        zlib.compress(json.dumps(offsets_by_topic, separators=(",", ":")).encode())
    ).decode()


def _parse_cursor(cursor: str) -> Offsets:
    try:
        offsets_by_topic = json.loads(zlib.decompress(base64.urlsafe_b64decode(cursor.encode())))
        offsets: Offsets = {
            str(topic): {int(partition): offset for partition, offset in topic_offsets.items()}
            for topic, topic_offsets in offsets_by_topic.items()
        }
        for topic_offsets in offsets.values():
            for offset in topic_offsets.values():
                if not isinstance(offset, int) or not 0 <= offset < 2**63:
                    raise ValueError(f"{offset!r} is not an offset")
        return offsets
    except (ValueError, zlib.error, AttributeError, TypeError) as error:
        raise InvalidRequest(
            f"Invalid cursor {cursor[:80]!r}.",
            remedy="Use a cursor that the feed returned, or `begin` or `now`.",
        ) from error
