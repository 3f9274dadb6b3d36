"""Committed offsets of consumer groups.

Fetched by aiokafka: librdkafka 2.16 aborts the whole process if a coordinator that is starting or
moving answers an administrative offset request with NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio

import structlog
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from schemas.errors import LogUnavailable
from streams.kafka.aiokafka_ext import start_client
from streams.kafka.client import KafkaClientSettings, translate_aiokafka_error

log = structlog.get_logger(__name__)
_TIMEOUT_S = 10.0
# A broker that starts, or whose cores are busy, takes over ten seconds to load a coordinator.
_RETRY_FOR_S = 30.0
_RETRY_DELAY_S = 0.2


class GroupOffsets:
    """Reads committed offsets. Belongs to one event loop; connects on first use."""

    def __init__(self, settings: KafkaClientSettings) -> None:
        self._settings = settings
        self._client: AIOKafkaAdminClient | None = None
        self._connect_lock = asyncio.Lock()

    async def fetch_committed(self, group: str, topic: str, partition_count: int) -> dict[int, int]:
        """Return the committed offset of each partition that has one. Names include the topic
        prefix.
        """
        # Retry: a group's coordinator may be moving to another broker.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _RETRY_FOR_S
        while True:
            try:
                return await self._fetch_once(group, topic, partition_count)
            except LogUnavailable as error:
                if loop.time() >= deadline:
                    raise
                log.debug("request_retried", detail=error.detail)
                await asyncio.sleep(_RETRY_DELAY_S)

    async def _fetch_once(self, group: str, topic: str, partition_count: int) -> dict[int, int]:
        topic_partitions = [
            TopicPartition(topic, partition) for partition in range(partition_count)
        ]
        try:
            client = await self._get_client()
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    offsets = await client.list_consumer_group_offsets(
                        group, partitions=topic_partitions
                    )
            finally:
                if self._client is not client:  # closed meanwhile, and perhaps connected again
                    await client._client.close()
        except Exception as error:
            raise translate_aiokafka_error(
                error, f"Reading the offsets of group {group} failed"
            ) from error
        # aiokafka ignores the error code of a refused request and returns no partitions.
        if offsets.keys() != set(topic_partitions):
            raise LogUnavailable(f"Kafka refused to return the offsets of group {group}.")
        return {
            topic_partition.partition: offset_metadata.offset
            for topic_partition, offset_metadata in offsets.items()
            # Kafka returns -1 for a partition without a committed offset.
            if offset_metadata.offset >= 0
        }

    async def _get_client(self) -> AIOKafkaAdminClient:
        async with self._connect_lock:
            if self._client is None:
                client = AIOKafkaAdminClient(
                    **self._settings.to_aiokafka_arguments(),
                    client_id="anabranch-groups",
                    request_timeout_ms=int(_TIMEOUT_S * 1000),
                    retry_backoff_ms=100,
                )
                await start_client(client.start(), client.close)
                self._client = client
        return self._client

    async def close(self) -> None:
        async with self._connect_lock:  # not while it starts
            client, self._client = self._client, None
        if client is not None:
            await client.close()
