"""`EventLog` on Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import timedelta

from schemas.records import Position, Record, StoredRecord
from streams.dense_log import DenseLog
from streams.kafka.acls import Grant
from streams.kafka.admin import KafkaAdmin
from streams.kafka.bulk_reader import BulkReader
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.group_offsets import GroupOffsets
from streams.kafka.log_filters import install_log_filters
from streams.kafka.record_producer import RecordProducer
from streams.kafka.topic_config import fetch_loss_settings, fetch_max_retention, fetch_min_retention

__all__ = ["KafkaLog", "KafkaClientSettings"]


class KafkaLog(DenseLog):
    """An `EventLog` on Kafka. Connects on first use and belongs to the event loop of that use."""

    def __init__(self, settings: KafkaClientSettings, *, append_timeout_s: float = 30.0) -> None:
        self._settings = settings
        self._admin = KafkaAdmin(settings)
        self._group_offsets = GroupOffsets(settings)
        self._producer = RecordProducer(
            settings, self._admin.fetch_partition_count, timeout_s=append_timeout_s
        )
        install_log_filters()

    async def append(self, records: Sequence[Record]) -> list[Position]:
        return await self._producer.append(records)

    async def create_topics(
        self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]
    ) -> None:
        await self._admin.create_topics(partitions, retention_ms)

    async def delete_topics(self, topics: Collection[str]) -> None:
        await self._admin.delete_topics(topics)

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return await self._admin.fetch_offset_bounds(topic)

    async def read(
        self,
        topic: str,
        start: Mapping[int, int] | None = None,
        end: Mapping[int, int] | None = None,
        *,
        resume_after: Mapping[int, int] | None = None,
    ) -> AsyncIterator[StoredRecord]:
        start = {
            **(start or {}),
            **{
                partition: last_offset + 1
                for partition, last_offset in (resume_after or {}).items()
            },
        }
        async for record in BulkReader(
            self._settings, topic, await self._clamp_ranges(topic, start, end)
        ).read():
            yield record

    async def read_at(self, position: Position) -> StoredRecord | None:
        start, end = (
            {position.partition: position.offset},
            {position.partition: position.offset + 1},
        )
        ranges = await self._clamp_ranges(position.topic, start, end)
        # `_clamp_ranges` covers all partitions; this read needs one.
        single_range = {partition: ranges[partition] for partition in start if partition in ranges}
        async for record in BulkReader(self._settings, position.topic, single_range).read():
            return record
        return None

    async def fetch_max_retention(self, topic: str) -> timedelta | None:
        return await self._admin.query_topic_config(fetch_max_retention, topic)

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        return await self._admin.query_topic_config(fetch_min_retention, topic)

    async def fetch_loss_settings(self, topic: str) -> Mapping[str, str] | None:
        """Return settings by which the topic loses records, by Kafka's names; None if access is
        denied.
        """
        return await self._admin.query_topic_config(fetch_loss_settings, topic)

    async def fetch_grants(self) -> list[Grant] | None:
        """See `KafkaAdmin.fetch_grants`."""
        return await self._admin.fetch_grants()

    async def list_topics(self) -> list[str]:
        """Return all topics, those of generations included."""
        return await self._admin.list_topics()

    async def fetch_expired_offsets(self, topic: str) -> dict[int, int]:
        return {
            partition: first
            for partition, (first, _) in (await self.fetch_offset_bounds(topic)).items()
            if first
        }

    async def fetch_committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        prefix = self._settings.topic_prefix
        return await self._group_offsets.fetch_committed(
            prefix + group, prefix + topic, await self._admin.fetch_partition_count(topic)
        )

    async def wait_until_reachable(self, timeout_s: float) -> None:
        """Wait for a broker to answer. Raises LogUnavailable on time-out."""
        await self._admin.wait_until_reachable(timeout_s)

    async def close(self) -> None:
        self._admin.close()
        await self._group_offsets.close()
        await self._producer.close()

    async def _clamp_ranges(
        self, topic: str, start: Mapping[int, int] | None, end: Mapping[int, int] | None
    ) -> dict[int, tuple[int, int]]:
        """Limit the requested ranges to the offsets that exist."""
        return {
            partition: (
                # An offset outside the log would start at `auto.offset.reset` or never end.
                max(first_offset, (start or {}).get(partition, first_offset)),
                min(end_offset, (end or {}).get(partition, end_offset)),
            )
            for partition, (first_offset, end_offset) in (
                await self.fetch_offset_bounds(topic)
            ).items()
        }
