"""The log in memory: for tests, and proven equal to the other two by their contract suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from schemas.errors import ConfigurationError
from schemas.ports.log import OpenSink, Sink, Subscription
from schemas.records import Position, Record, StoredRecord
from streams.partitioning import partition_of

Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryLog:
    """An `EventLog` and a `Subscriber`, within one event loop. Retention is unlimited, whatever is asked for."""

    def __init__(self, clock: Clock = _utc_now) -> None:
        self._clock = clock
        self._topics: dict[str, list[list[StoredRecord]]] = {}
        self._groups: dict[tuple[str, str], Group] = {}

    async def append(self, records: Sequence[Record]) -> list[Position]:
        stored = [self._store(record) for record in records]
        for group in self._groups.values():
            group.wake()
        await asyncio.sleep(0)
        return stored

    async def create_topics(self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]) -> None:
        for topic, count in partitions.items():
            found = len(self._topics.setdefault(topic, [[] for _ in range(count)]))
            if found != count:
                raise ConfigurationError(f"Topic {topic} has {found} partitions, not {count}.", code="PARTITIONS_MISMATCH")

    async def delete_topics(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._topics.pop(topic, None)
        for (_, topic), group in self._groups.items():
            if topic in topics:
                group.acknowledged.clear()

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        return {partition: (0, len(records)) for partition, records in enumerate(self.partitions(topic))}

    async def read(
        self, topic: str, start: Mapping[int, int] | None = None, end: Mapping[int, int] | None = None, *, behind: Mapping[int, int] | None = None
    ) -> AsyncIterator[StoredRecord]:
        start = {**(start or {}), **{partition: last + 1 for partition, last in (behind or {}).items()}}
        for partition, (first, after_last) in (await self.ends(topic)).items():
            begin, stop = max(first, start.get(partition, first)), min(after_last, (end or {}).get(partition, after_last))
            for record in self.partitions(topic)[partition][begin:stop]:
                yield record
                await asyncio.sleep(0)

    async def read_at(self, position: Position) -> StoredRecord | None:
        partitions = self.partitions(position.topic)
        if not 0 <= position.partition < len(partitions):
            return None
        records = partitions[position.partition]
        return records[position.offset] if 0 <= position.offset < len(records) else None

    async def keeps(self, topic: str) -> timedelta | None:
        return None

    async def keeps_at_least(self, topic: str) -> timedelta | None:
        return None

    async def expired(self, topic: str) -> dict[int, int]:
        return {}

    async def acknowledged(self, group: str, topic: str) -> dict[int, int]:
        known = self._groups.get((group, topic))
        return dict(known.acknowledged) if known else {}

    async def close(self) -> None:
        """What was appended stays."""

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription:
        members = self._groups.setdefault((group, topic), Group(topic, self))
        return Member(members, open_sink)

    def partitions(self, topic: str) -> list[list[StoredRecord]]:
        try:
            return self._topics[topic]
        except KeyError:
            raise ConfigurationError(f"There is no topic {topic}.", code="NO_TOPIC") from None

    def _store(self, record: Record) -> Position:
        partitions = self.partitions(record.topic)
        number = partition_of(record.key, len(partitions)) if record.key is not None else sum(map(len, partitions)) % len(partitions)
        position = Position(record.topic, number, len(partitions[number]))
        partitions[number].append(StoredRecord(record, position, self._clock()))
        return position


class Group:
    """A consumer group's reading of one topic: who takes part, and how far it is."""

    def __init__(self, topic: str, log: MemoryLog) -> None:
        self.topic = topic
        self.log = log
        self.acknowledged: dict[int, int] = {}
        self._members: list[Member] = []
        self._rebalancing = asyncio.Lock()

    def wake(self) -> None:
        for member in self._members:
            member.wake()

    async def join(self, member: Member) -> None:
        await self._rebalance([*self._members, member])

    async def leave(self, member: Member) -> None:
        await self._rebalance([other for other in self._members if other is not member], leaving=[member])

    async def _rebalance(self, members: list[Member], *, leaving: Sequence[Member] = ()) -> None:
        """Everything is revoked from all before anything is assigned to anyone."""
        async with self._rebalancing:
            for member in [*self._members, *leaving]:
                await member.revoke()
            self._members = members
            for number in range(len(self.log.partitions(self.topic)) if members else 0):
                members[number % len(members)].assign(number)


class AssignedPartition:
    """A `Partition`, from its assignment to its revocation."""

    def __init__(self, group: Group, number: int, wake: Callable[[], None]) -> None:
        self.topic = group.topic
        self.number = number
        self._group = group
        self._wake = wake
        self._next = group.acknowledged.get(number, 0)
        self._sink: Sink | None = None

    def open(self, open_sink: OpenSink) -> None:
        self._sink = open_sink(self)

    async def close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()

    def deliver(self) -> bool:
        """Offer the next record, if there is one and the sink is not full."""
        records = self._group.log.partitions(self.topic)[self.number]
        if self._sink is None or self._sink.full or self._next >= len(records):
            return False
        self._next += 1
        self._sink.offer(records[self._next - 1])
        return True

    def acknowledge(self, next_offset: int) -> None:
        if self._sink is not None:
            self._group.acknowledged[self.number] = next_offset

    def resume(self) -> None:
        self._wake()

    @property
    def kept(self) -> int:
        return self._group.acknowledged.get(self.number, 0)


class Member:
    """One subscription of a group."""

    def __init__(self, group: Group, open_sink: OpenSink) -> None:
        self._group = group
        self._open_sink = open_sink
        self._awake = asyncio.Event()
        self._partitions: list[AssignedPartition] = []

    async def run(self) -> None:
        try:
            await self._group.join(self)
            while True:
                self._awake.clear()
                if not self._deliver():
                    await self._awake.wait()
                await asyncio.sleep(0)
        finally:
            await asyncio.shield(self._group.leave(self))

    def wake(self) -> None:
        self._awake.set()

    def assign(self, number: int) -> None:
        partition = AssignedPartition(self._group, number, self.wake)
        self._partitions.append(partition)
        partition.open(self._open_sink)
        self.wake()

    async def revoke(self) -> None:
        partitions, self._partitions = self._partitions, []
        for partition in partitions:
            await partition.close()

    def _deliver(self) -> bool:
        return sum(partition.deliver() for partition in self._partitions) > 0
