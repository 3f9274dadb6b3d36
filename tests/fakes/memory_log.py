"""In-memory log for tests. Passes the same contract suite as the Kafka and Postgres logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from aiokafka.partitioner import murmur2

from schemas.errors import ConfigurationError
from schemas.ports.log import OpenSink, Sink, Subscription
from schemas.topics import Position, Record, StoredRecord
from streams.dense_log import DenseLog

Clock = Callable[[], datetime]


def choose_partition(key: bytes, partition_count: int) -> int:
    """Choose the partition as Kafka's Java producer does by default for records with a key."""
    return int(murmur2(key) & 0x7FFFFFFF) % partition_count


class MemoryLog(DenseLog):
    """An `EventLog` and `Subscriber` within one event loop. Ignores retention settings."""

    def __init__(self, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._topics: dict[str, list[list[StoredRecord]]] = {}
        self._groups: dict[tuple[str, str], MemoryConsumerGroup] = {}

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = []
        for record in records:
            partitions = self.partitions(record.topic)
            number = (
                choose_partition(record.key, len(partitions))
                if record.key is not None
                else sum(map(len, partitions)) % len(partitions)
            )
            positions.append(Position(record.topic, number, len(partitions[number])))
            partitions[number].append(StoredRecord(record, positions[-1], self._clock()))
        for group in self._groups.values():
            group.wake()
        await asyncio.sleep(0)  # like a real log, append gives other tasks a turn
        return positions

    async def create_topics(
        self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]
    ) -> None:
        for topic, count in partitions.items():
            existing_count = len(self._topics.setdefault(topic, [[] for _ in range(count)]))
            if existing_count != count:
                raise ConfigurationError(
                    f"Topic {topic} has {existing_count} partitions, not {count}.",
                    code="PARTITIONS_MISMATCH",
                )

    async def delete_topics(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._topics.pop(topic, None)
        for (_, topic), group in self._groups.items():
            if topic in topics:
                # As on Kafka, where a new topic of the same name begins at offset 0.
                group.committed_offsets.clear()

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {
            partition: (0, len(records)) for partition, records in enumerate(self.partitions(topic))
        }

    async def read(
        self,
        topic: str,
        start: Mapping[int, int] | None = None,
        end: Mapping[int, int] | None = None,
        *,
        resume_after: Mapping[int, int] | None = None,
    ) -> AsyncGenerator[StoredRecord, None]:
        start = {
            **(start or {}),
            **{
                partition: last_offset + 1
                for partition, last_offset in (resume_after or {}).items()
            },
        }
        for partition, (first_offset, end_offset) in (
            await self.fetch_offset_bounds(topic)
        ).items():
            read_start, read_end = (
                max(first_offset, start.get(partition, first_offset)),
                min(end_offset, (end or {}).get(partition, end_offset)),
            )
            for record in self.partitions(topic)[partition][read_start:read_end]:
                yield record
                await asyncio.sleep(0)

    async def read_at(self, position: Position) -> StoredRecord | None:
        partitions = self.partitions(position.topic)
        if not 0 <= position.partition < len(partitions):
            return None
        records = partitions[position.partition]
        return records[position.offset] if 0 <= position.offset < len(records) else None

    async def fetch_max_retention(self, topic: str) -> timedelta | None:
        return None

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        return None

    async def fetch_expired_offsets(self, topic: str) -> dict[int, int]:
        return {}

    async def fetch_committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        consumer_group = self._groups.get((group, topic))
        return dict(consumer_group.committed_offsets) if consumer_group else {}

    async def close(self) -> None:
        """Do nothing: records stay readable."""

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription:
        consumer_group = self._groups.setdefault((group, topic), MemoryConsumerGroup(topic, self))
        return MemoryGroupMember(consumer_group, open_sink)

    def partitions(self, topic: str) -> list[list[StoredRecord]]:
        try:
            return self._topics[topic]
        except KeyError:
            raise ConfigurationError(f"Topic {topic} does not exist.", code="NO_TOPIC") from None


class MemoryConsumerGroup:
    """A consumer group on one topic: its members and committed offsets."""

    def __init__(self, topic: str, log: MemoryLog) -> None:
        self.topic = topic
        self.log = log
        self.committed_offsets: dict[int, int] = {}
        self._members: list[MemoryGroupMember] = []
        self._rebalance_lock = asyncio.Lock()

    def wake(self) -> None:
        for member in self._members:
            member.wake()

    async def join(self, member: MemoryGroupMember) -> None:
        await self._rebalance([*self._members, member])

    async def leave(self, member: MemoryGroupMember) -> None:
        await self._rebalance(
            [
                remaining_member
                for remaining_member in self._members
                if remaining_member is not member
            ],
            leaving_members=[member],
        )

    async def _rebalance(
        self, members: list[MemoryGroupMember], *, leaving_members: Sequence[MemoryGroupMember] = ()
    ) -> None:
        # Like Kafka's eager protocol: all members lose all partitions before any is assigned.
        async with self._rebalance_lock:
            for member in [*self._members, *leaving_members]:
                await member.revoke()
            self._members = members
            for number in range(len(self.log.partitions(self.topic)) if members else 0):
                members[number % len(members)].assign(number)


class MemoryPartition:
    """A `Partition` from its assignment to its revocation."""

    def __init__(self, group: MemoryConsumerGroup, number: int, wake: Callable[[], None]) -> None:
        self.topic = group.topic
        self.number = number
        self._group = group
        self._wake = wake
        self._next_offset = group.committed_offsets.get(number, 0)
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
        if self._sink is None or self._sink.is_full or self._next_offset >= len(records):
            return False
        self._next_offset += 1
        self._sink.offer(records[self._next_offset - 1])
        return True

    def acknowledge(self, next_offset: int) -> None:
        if self._sink is not None:
            self._group.committed_offsets[self.number] = next_offset

    def resume(self) -> None:
        self._wake()

    @property
    def committed_offset(self) -> int:
        return self._group.committed_offsets.get(self.number, 0)


class MemoryGroupMember:
    """One subscription of a group."""

    def __init__(self, group: MemoryConsumerGroup, open_sink: OpenSink) -> None:
        self._group = group
        self._open_sink = open_sink
        self._wake_event = asyncio.Event()
        self._partitions: list[MemoryPartition] = []

    async def run(self) -> None:
        try:
            await self._group.join(self)
            while True:
                # Cleared before the delivery, so that a record that arrives meanwhile is not
                # missed.
                self._wake_event.clear()
                deliveries = [partition.deliver() for partition in self._partitions]
                if not any(deliveries):
                    await self._wake_event.wait()
                await asyncio.sleep(0)
        finally:
            # Shielded: a cancelled member must still give up its partitions.
            await asyncio.shield(self._group.leave(self))

    def wake(self) -> None:
        self._wake_event.set()

    def assign(self, number: int) -> None:
        partition = MemoryPartition(self._group, number, self.wake)
        self._partitions.append(partition)
        partition.open(self._open_sink)
        self.wake()

    async def revoke(self) -> None:
        partitions, self._partitions = self._partitions, []
        for partition in partitions:
            await partition.close()
