"""Bulk reading of a topic, outside any consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas.errors import LogUnavailable
from schemas.records import Position, Record, StoredRecord
from streams.kafka.admin import translate_librdkafka_error
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.log_filters import librdkafka_logger

_BATCH_MESSAGES = 500
_POLL_TIMEOUT_S = 1.0
_MAX_EMPTY_POLLS = 30
"""How often in a row Kafka may have nothing to say, though records are there."""
_QUEUE_KB = 16_384


class BulkReader:
    """One pass over some partitions of one topic, from offsets up to offsets (exclusive)."""

    def __init__(self, settings: KafkaClientSettings, topic: str, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._settings = settings
        self._topic = topic
        self._ranges = ranges
        self._ends = {partition: end for partition, (start, end) in ranges.items() if start < end}

    async def read(self) -> AsyncIterator[StoredRecord]:
        """In order within a partition. A partition that has nothing (more) to read before its end is done: the last offsets may be markers of transactions."""
        if not self._ends:
            return
        with ThreadPoolExecutor(1, "kafka-reading") as thread:  # one thread: a consumer must not be closed while it is asked
            loop = asyncio.get_running_loop()
            consumer = Consumer(self._build_config(), logger=librdkafka_logger)
            try:
                consumer.assign([TopicPartition(self._settings.topic_prefix + self._topic, partition, self._ranges[partition][0]) for partition in self._ends])
                async for record in self._poll_until_ends(consumer, loop, thread):
                    yield record
            finally:
                await asyncio.shield(loop.run_in_executor(thread, consumer.close))

    async def _poll_until_ends(self, consumer: Consumer, loop: asyncio.AbstractEventLoop, thread: ThreadPoolExecutor) -> AsyncIterator[StoredRecord]:
        empty_polls = 0
        while self._ends:
            messages = await loop.run_in_executor(thread, _poll_messages, consumer)
            empty_polls = 0 if messages else empty_polls + 1
            if empty_polls >= _MAX_EMPTY_POLLS:
                raise LogUnavailable(f"Kafka has not sent the rest of {self._topic} for {_MAX_EMPTY_POLLS * _POLL_TIMEOUT_S:.0f} s.")
            for message in messages:
                if self._is_before_end(message):
                    yield self._build_stored_record(message)

    def _is_before_end(self, message: Message) -> bool:
        """Whether it lies before the end; takes note of what is finished."""
        is_record = self._is_record(message)  # first: an error that is about the group has no place
        partition, offset = _get_offset(message)
        end = self._ends.get(partition, 0)
        if offset + is_record >= end:
            self._ends.pop(partition, None)
        return is_record and offset < end

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            return False
        raise translate_librdkafka_error(KafkaException(error), f"reading {self._topic}")

    def _build_stored_record(self, message: Message) -> StoredRecord:
        headers: Any = message.headers() or ()
        record = Record(self._topic, message.key(), message.value(), {name: value or b"" for name, value in headers})
        return StoredRecord(record, Position(self._topic, *_get_offset(message)), datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC))

    def _build_config(self) -> dict[str, Any]:
        return {
            **self._settings.to_librdkafka_config(),
            "client.id": "anabranch-reading",
            # Asked for by the library; nothing joins it and nothing is committed. The prefix is the one that access rules for groups are made for.
            "group.id": f"{self._settings.topic_prefix}anabranch.reading",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": _QUEUE_KB,
        }


def _get_offset(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None  # only of a message that is still to be sent
    return partition, offset


def _poll_messages(consumer: Consumer) -> list[Message]:
    """What is there, waiting only for the first."""
    first = consumer.poll(_POLL_TIMEOUT_S)
    return [] if first is None else [first, *consumer.consume(_BATCH_MESSAGES - 1, 0)]
