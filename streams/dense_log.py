"""Count records by offsets that have no gaps, for the logs on Kafka and in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from schemas.ports.log import LOG_EPOCH, EventLog
from schemas.topics import Position


class DenseLog(EventLog):
    """An `EventLog` outside the database whose offsets count records."""

    is_in_database = False

    def assign_order(self, position: Position, appended_at: datetime) -> list[int]:
        # Partition and offset break ties: two partitions may append in the same millisecond.
        milliseconds = int(appended_at.timestamp() * 1000)
        return [LOG_EPOCH, milliseconds, position.partition, position.offset]

    async def count_pending(
        self, group: str, topic: str, below: Mapping[int, int] | None = None
    ) -> int:
        return _count(await self._fetch_pending_ranges(group, topic), below)

    async def count_records(self, topic: str, below: Mapping[int, int] | None = None) -> int:
        return _count(await self.fetch_offset_bounds(topic), below)

    async def fetch_oldest_pending_time(self, group: str, topic: str) -> datetime | None:
        ranges = await self._fetch_pending_ranges(group, topic)
        start = {partition: first for partition, (first, _) in ranges.items()}
        # One record for each partition is enough: append times ascend within it.
        end = {partition: min(first + 1, last) for partition, (first, last) in ranges.items()}
        return min(
            [stored.appended_at async for stored in self.read(topic, start, end)], default=None
        )

    async def _fetch_pending_ranges(self, group: str, topic: str) -> dict[int, tuple[int, int]]:
        bounds = await self.fetch_offset_bounds(topic)
        committed = await self.fetch_committed_offsets(group, topic)
        return {
            # A group behind retention begins at the first record that still exists.
            partition: (max(first, committed.get(partition, first)), end)
            for partition, (first, end) in bounds.items()
        }

    async def has_reader(self, group: str, topic: str) -> bool | None:
        return None

    async def expire(self, unread: Collection[str] = ()) -> None:
        """Do nothing: Kafka expires records itself, and the in-memory log keeps them."""


def _count(bounds: Mapping[int, tuple[int, int]], below: Mapping[int, int] | None) -> int:
    return sum(
        max(0, (end if below is None else min(end, below.get(partition, 0))) - first)
        for partition, (first, end) in bounds.items()
    )
