"""What consumer groups have committed. Asked by aiokafka: librdkafka 2.16 ends the whole process where a coordinator that is only coming up, or moves, answers an
administrator's question for offsets that it is not the one to ask."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from schemas.errors import LogUnavailable
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.errors import translate_aiokafka_error

_log = logging.getLogger(__name__)
_TIMEOUT_S = 10.0
_MAX_RETRIES = 30
_RETRY_DELAY_S = 0.1


class GroupOffsets:
    """Of one event loop; nothing is connected before it is needed."""

    def __init__(self, settings: KafkaClientSettings) -> None:
        self._settings = settings
        self._client: AIOKafkaAdminClient | None = None
        self._connect_lock = asyncio.Lock()

    async def fetch_committed(self, group: str, topic: str, partition_count: int) -> dict[int, int]:
        """By partition, those left out of which nothing is; names as the cluster has them. Tries again for a while: a group is moved from one broker to another."""
        for _ in range(_MAX_RETRIES):
            try:
                return await self._fetch_once(group, topic, partition_count)
            except LogUnavailable as error:
                _log.debug("asking again: %s", error.detail)
                await asyncio.sleep(_RETRY_DELAY_S)
        return await self._fetch_once(group, topic, partition_count)

    async def _fetch_once(self, group: str, topic: str, partition_count: int) -> dict[int, int]:
        """A refusal of the whole question comes as an answer about nothing."""
        topic_partitions = [TopicPartition(topic, partition) for partition in range(partition_count)]
        try:
            client = await self._get_client()
            async with asyncio.timeout(_TIMEOUT_S):
                offsets = await client.list_consumer_group_offsets(group, partitions=topic_partitions)
        except Exception as error:
            raise translate_aiokafka_error(error, f"reading the offsets of group {group}") from error
        if offsets.keys() != set(topic_partitions):
            raise LogUnavailable(f"Kafka does not tell the offsets of group {group} now.")
        return {topic_partition.partition: offset_metadata.offset for topic_partition, offset_metadata in offsets.items() if offset_metadata.offset >= 0}

    async def _get_client(self) -> AIOKafkaAdminClient:
        async with self._connect_lock:
            if self._client is None:
                client = AIOKafkaAdminClient(
                    **self._settings.to_aiokafka_arguments(), client_id="anabranch-groups", request_timeout_ms=int(_TIMEOUT_S * 1000), retry_backoff_ms=100
                )
                try:
                    await client.start()
                except BaseException:
                    with suppress(Exception):
                        await client.close()
                    raise
                self._client = client
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
