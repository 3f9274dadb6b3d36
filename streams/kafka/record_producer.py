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
from schemas.records import Position, Record
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.errors import translate_aiokafka_error

# Ours are below 900 KB; Kafka's own default is the limit of most clusters.
_MAX_REQUEST_BYTES = 1_048_576
_BATCH_BYTES = 131_072


class RecordProducer:
    """One producer of one event loop, started with the first append."""

    def __init__(self, settings: KafkaClientSettings, check_topic: Callable[[str], Awaitable[object]], *, timeout_s: float) -> None:
        """`look_for` raises ConfigurationError where a broker says that there is no such topic."""
        self._settings = settings
        self._check_topic = check_topic
        self._timeout_s = timeout_s
        self._start_lock = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None

    async def append(self, records: Sequence[Record]) -> list[Position]:
        """As `EventLog.append`. Raises LogUnavailable when Kafka has not confirmed everything in time; what was handed over may arrive later all the same."""
        if not records:
            return []
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._send(await self._get_producer(), records)
        except TimeoutError as error:
            raise LogUnavailable(f"Kafka has not confirmed {len(records)} records for {records[0].topic} in {self._timeout_s:g} s.") from error
        except UnknownTopicOrPartitionError as error:
            for topic in dict.fromkeys(record.topic for record in records):
                await self._check_topic(topic)
            raise LogUnavailable(f"appending to {records[0].topic}: no broker has said in time where this topic is.") from error
        except (KafkaError, OSError) as error:
            translated_error = translate_aiokafka_error(error, f"appending to {records[0].topic}")
            if isinstance(translated_error, LogUnavailable) and not getattr(error, "retriable", True):
                await self.close()  # an idempotent producer that lost its place (fenced, out of sequence) refuses everything from then on
            raise translated_error from error

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await producer.stop()

    async def _get_producer(self) -> AIOKafkaProducer:
        async with self._start_lock:
            if self._producer is None:
                producer = self._new_producer()
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    def _new_producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            **self._settings.to_aiokafka_arguments(),
            client_id="anabranch-publisher",
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            max_batch_size=_BATCH_BYTES,
            max_request_size=_MAX_REQUEST_BYTES,
            request_timeout_ms=int(self._timeout_s * 500),
        )

    async def _send(self, producer: AIOKafkaProducer, records: Sequence[Record]) -> list[Position]:
        confirmations: list[asyncio.Future[RecordMetadata]] = []
        try:
            for record in records:
                confirmations.append(await self._send_record(producer, record))
            metadata_list = await asyncio.gather(*(asyncio.shield(confirmation) for confirmation in confirmations))
        except BaseException:
            for confirmation in confirmations:
                confirmation.add_done_callback(_consume_exception)
            raise
        return [Position(record.topic, metadata.partition, metadata.offset) for record, metadata in zip(records, metadata_list, strict=True)]

    async def _send_record(self, producer: AIOKafkaProducer, record: Record) -> asyncio.Future[RecordMetadata]:
        topic = self._settings.topic_prefix + record.topic
        confirmation: asyncio.Future[RecordMetadata] = await producer.send(topic, value=record.value, key=record.key, headers=list(record.headers.items()))
        return confirmation


def _consume_exception(confirmation: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, so that its failure is nobody's surprise."""
    if not confirmation.cancelled():
        confirmation.exception()
