"""The log on Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import timedelta

from schemas.records import Position, Record, StoredRecord
from streams.kafka.acls import Grant
from streams.kafka.administration import Administration
from streams.kafka.groups import Groups
from streams.kafka.publishing import Publishing
from streams.kafka.quiet import quiet
from streams.kafka.reading import Reading
from streams.kafka.retention import forgets, keeps, keeps_at_least
from streams.kafka.settings import KafkaSettings

__all__ = ["KafkaLog", "KafkaSettings"]


class KafkaLog:
    """An `EventLog`. It belongs to the event loop that appends or asks for a group first; nothing is connected before it is needed."""

    def __init__(self, settings: KafkaSettings, *, append_timeout_s: float = 30.0) -> None:
        self._settings = settings
        self._administration = Administration(settings)
        self._groups = Groups(settings)
        self._publishing = Publishing(settings, self._administration.partition_count, timeout_s=append_timeout_s)
        quiet()

    async def append(self, records: Sequence[Record]) -> list[Position]:
        return await self._publishing.append(records)

    async def create_topics(self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]) -> None:
        await self._administration.create_topics(partitions, retention_ms)

    async def delete_topics(self, topics: Collection[str]) -> None:
        await self._administration.delete_topics(topics)

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        return await self._administration.ends(topic)

    async def read(
        self, topic: str, start: Mapping[int, int] | None = None, end: Mapping[int, int] | None = None, *, behind: Mapping[int, int] | None = None
    ) -> AsyncIterator[StoredRecord]:
        start = {**(start or {}), **{partition: last + 1 for partition, last in (behind or {}).items()}}
        async for record in Reading(self._settings, topic, await self._ranges(topic, start, end)).records():
            yield record

    async def read_at(self, position: Position) -> StoredRecord | None:
        here, next_one = {position.partition: position.offset}, {position.partition: position.offset + 1}
        ranges = await self._ranges(position.topic, here, next_one)
        only = {partition: ranges[partition] for partition in here if partition in ranges}
        async for record in Reading(self._settings, position.topic, only).records():
            return record
        return None

    async def keeps(self, topic: str) -> timedelta | None:
        return await self._administration.looked(keeps, topic)

    async def keeps_at_least(self, topic: str) -> timedelta | None:
        return await self._administration.looked(keeps_at_least, topic)

    async def forgets(self, topic: str) -> Mapping[str, str] | None:
        """The settings by which the topic loses records, as Kafka names them; None where the cluster does not let us look."""
        return await self._administration.looked(forgets, topic)

    async def grants(self) -> list[Grant] | None:
        """See `Administration.grants`."""
        return await self._administration.grants()

    async def topics(self) -> list[str]:
        """That are there, those of generations included."""
        return await self._administration.topics()

    async def expired(self, topic: str) -> dict[int, int]:
        return {partition: first for partition, (first, _) in (await self.ends(topic)).items() if first}

    async def acknowledged(self, group: str, topic: str) -> dict[int, int]:
        prefix = self._settings.topic_prefix
        return await self._groups.committed(prefix + group, prefix + topic, await self._administration.partition_count(topic))

    async def wait_until_reachable(self, timeout_s: float) -> None:
        """Raises LogUnavailable where no broker answers in time."""
        await self._administration.wait_until_reachable(timeout_s)

    async def close(self) -> None:
        self._administration.close()
        await self._groups.close()
        await self._publishing.close()

    async def _ranges(self, topic: str, start: Mapping[int, int] | None, end: Mapping[int, int] | None) -> dict[int, tuple[int, int]]:
        """What of the asked-for is there."""
        return {
            partition: (max(first, (start or {}).get(partition, first)), min(after_last, (end or {}).get(partition, after_last)))
            for partition, (first, after_last) in (await self.ends(topic)).items()
        }
