"""What consumer groups have committed. Asked by aiokafka: librdkafka 2.16 ends the whole process where a coordinator that is only coming up, or moves, answers an
administrator's question for offsets that it is not the one to ask."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from schemas.errors import LogUnavailable
from streams.kafka.refusals import translated
from streams.kafka.settings import KafkaSettings

_log = logging.getLogger(__name__)
_TIMEOUT_S = 10.0
_TRIES = 30
_AGAIN_AFTER_S = 0.1


class Groups:
    """Of one event loop; nothing is connected before it is needed."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client: AIOKafkaAdminClient | None = None
        self._connecting = asyncio.Lock()

    async def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """By partition, those left out of which nothing is; names as the cluster has them. Tries again for a while: a group is moved from one broker to another."""
        for _ in range(_TRIES):
            try:
                return await self._once(group, topic, partitions)
            except LogUnavailable as error:
                _log.debug("asking again: %s", error.detail)
                await asyncio.sleep(_AGAIN_AFTER_S)
        return await self._once(group, topic, partitions)

    async def _once(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """A refusal of the whole question comes as an answer about nothing."""
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        try:
            client = await self._connected()
            async with asyncio.timeout(_TIMEOUT_S):
                found = await client.list_consumer_group_offsets(group, partitions=asked)
        except Exception as error:
            raise translated(error, f"reading the offsets of group {group}") from error
        if found.keys() != set(asked):
            raise LogUnavailable(f"Kafka does not tell the offsets of group {group} now.")
        return {place.partition: said.offset for place, said in found.items() if said.offset >= 0}

    async def _connected(self) -> AIOKafkaAdminClient:
        async with self._connecting:
            if self._client is None:
                client = AIOKafkaAdminClient(
                    **self._settings.for_aiokafka(), client_id="anabranch-groups", request_timeout_ms=int(_TIMEOUT_S * 1000), retry_backoff_ms=100
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
