"""Appending records: an idempotent producer that waits for all replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from aiokafka.structs import RecordMetadata

from schemas.errors import LogUnavailable
from schemas.topics import Position, Record
from streams.kafka.aiokafka_ext import start_client
from streams.kafka.client import KafkaClientSettings, translate_aiokafka_error

# Our events are below 900 KB; most clusters have Kafka's default limit, which is this.
_MAX_REQUEST_BYTES = 1_048_576
_BATCH_BYTES = 131_072


class RecordProducer:
    """An aiokafka producer. Belongs to one event loop; starts with the first append."""

    def __init__(
        self,
        settings: KafkaClientSettings,
        check_topic: Callable[[str], Awaitable[object]],
        *,
        timeout_s: float,
    ) -> None:
        """`check_topic` raises ConfigurationError if a broker confirms that the topic does not
        exist.
        """
        self._settings = settings
        self._check_topic = check_topic
        self._timeout_s = timeout_s
        self._start_lock = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None

    async def append(self, records: Sequence[Record]) -> list[Position]:
        """See `EventLog.append`.

        Raises LogUnavailable on time-out; the records may still be written later.
        """
        if not records:
            return []
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._send(await self._get_producer(), records)
        except TimeoutError as error:
            raise LogUnavailable(
                f"Kafka did not confirm {len(records)} records for {records[0].topic} within "
                f"{self._timeout_s:g} s. They may still be written."
            ) from error
        except UnknownTopicOrPartitionError as error:
            # aiokafka raises this also if no broker answers, so ask a broker before believing it.
            for topic in dict.fromkeys(record.topic for record in records):
                await self._check_topic(topic)
            raise LogUnavailable(
                f"Appending to {records[0].topic} failed: no broker returned its metadata in time."
            ) from error
        except (KafkaError, OSError) as error:
            translated_error = translate_aiokafka_error(
                error, f"Appending to {records[0].topic} failed"
            )
            # A fenced or out-of-sequence idempotent producer refuses every later append: start a
            # new one.
            if isinstance(translated_error, LogUnavailable) and not getattr(
                error, "retriable", True
            ):
                await self.close()
            raise translated_error from error

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._timeout_s):
                        await producer.stop()
            finally:  # also if `stop` still waits for records to be sent
                await producer.client.close()

    async def _get_producer(self) -> AIOKafkaProducer:
        # Concurrent first appends would start a producer each, and all but one would leak.
        async with self._start_lock:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **self._settings.to_aiokafka_arguments(),
                    client_id="anabranch-publisher",
                    # An acknowledged event must survive the loss of a broker: the stage marks it
                    # as published.
                    acks="all",
                    # Retries inside the client must neither duplicate nor reorder records.
                    enable_idempotence=True,
                    compression_type="lz4",
                    max_batch_size=_BATCH_BYTES,
                    max_request_size=_MAX_REQUEST_BYTES,
                    # Half of our time-out, so that a lost request is retried once.
                    request_timeout_ms=int(self._timeout_s * 500),
                )
                await start_client(producer.start(), producer.stop)
                self._producer = producer
            return self._producer

    async def _send(self, producer: AIOKafkaProducer, records: Sequence[Record]) -> list[Position]:
        confirmations: list[asyncio.Future[RecordMetadata]] = []
        try:
            for record in records:
                # Only buffered here, in order; the confirmations are awaited together.
                confirmations.append(
                    await producer.send(
                        self._settings.topic_prefix + record.topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers.items()),
                    )
                )
            # shield: cancelling aiokafka's own future would not unsend the record.
            metadata_list = await asyncio.gather(
                *(asyncio.shield(confirmation) for confirmation in confirmations)
            )
        except BaseException:
            for confirmation in confirmations:
                confirmation.add_done_callback(_consume_exception)
            raise
        return [
            Position(record.topic, metadata.partition, metadata.offset)
            for record, metadata in zip(records, metadata_list, strict=True)
        ]


def _consume_exception(confirmation: asyncio.Future[Any]) -> None:
    """Retrieve the exception so that asyncio does not log it."""
    if not confirmation.cancelled():
        confirmation.exception()
