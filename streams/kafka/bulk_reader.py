"""Bulk reading of a topic outside any consumer group (librdkafka reads 26 to 54 times faster than
Faust).
"""

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
"""Consecutive empty polls, though records remain, before the broker counts as unavailable."""
_QUEUE_KB = 16_384


class BulkReader:
    """One pass over partitions of one topic. `ranges` holds start and end offset (exclusive) by
    partition.
    """

    def __init__(
        self, settings: KafkaClientSettings, topic: str, ranges: Mapping[int, tuple[int, int]]
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._ranges = ranges
        self._ends = {partition: end for partition, (start, end) in ranges.items() if start < end}

    async def read(self) -> AsyncIterator[StoredRecord]:
        """Yield records, in order within each partition."""
        if not self._ends:
            return
        # One thread, since a consumer must not be closed during a poll.
        with ThreadPoolExecutor(1, "kafka-reading") as thread:
            loop = asyncio.get_running_loop()
            configuration: dict[str, Any] = {
                **self._settings.to_librdkafka_config(),
                "client.id": "anabranch-reading",
                # librdkafka requires a group, but never joins it. Access rules need the prefix.
                "group.id": f"{self._settings.topic_prefix}anabranch.reading",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # Retention may remove the start offset between listing and reading.
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": _QUEUE_KB,
            }
            consumer = Consumer(configuration, logger=librdkafka_logger)
            try:
                # `assign`, not `subscribe`: no group is joined, so nothing is rebalanced and no
                # offset committed.
                consumer.assign(
                    [
                        TopicPartition(
                            self._settings.topic_prefix + self._topic,
                            partition,
                            self._ranges[partition][0],
                        )
                        for partition in self._ends
                    ]
                )
                async for record in self._poll_until_ends(consumer, loop, thread):
                    yield record
            finally:
                # Shielded, and on the polling thread: a cancelled reader must still close its
                # connections.
                await asyncio.shield(loop.run_in_executor(thread, consumer.close))

    async def _poll_until_ends(
        self, consumer: Consumer, loop: asyncio.AbstractEventLoop, thread: ThreadPoolExecutor
    ) -> AsyncIterator[StoredRecord]:
        empty_polls = 0
        while self._ends:
            messages = await loop.run_in_executor(thread, _poll_messages, consumer)
            # librdkafka reconnects by itself, so only a long silence counts as an outage.
            empty_polls = 0 if messages else empty_polls + 1
            if empty_polls >= _MAX_EMPTY_POLLS:
                raise LogUnavailable(
                    f"Kafka sent no more records of {self._topic} for "
                    f"{_MAX_EMPTY_POLLS * _POLL_TIMEOUT_S:.0f} s."
                )
            for message in messages:
                if self._is_before_end(message):
                    yield self._build_stored_record(message)

    def _is_before_end(self, message: Message) -> bool:
        """Return whether the message is a record before the end of its partition; drop finished
        partitions.
        """
        error = message.error()
        # First, since an error of the group has no offset.
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise translate_librdkafka_error(KafkaException(error), f"Reading {self._topic} failed")
        is_record = error is None
        partition, offset = _get_offset(message)
        end = self._ends.get(partition, 0)
        # PARTITION_EOF also ends a partition: its last offsets may be transaction markers, not
        # records.
        if offset + is_record >= end:
            self._ends.pop(partition, None)
        return is_record and offset < end

    def _build_stored_record(self, message: Message) -> StoredRecord:
        headers: Any = message.headers() or ()
        record = Record(
            self._topic,
            message.key(),
            message.value(),
            {name: value or b"" for name, value in headers},
        )
        return StoredRecord(
            record,
            Position(self._topic, *_get_offset(message)),
            datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        )


def _get_offset(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, "only unsent messages have none"
    return partition, offset


def _poll_messages(consumer: Consumer) -> list[Message]:
    """Wait for a first message and return it with those already fetched."""
    first = consumer.poll(_POLL_TIMEOUT_S)
    # `consume` alone would wait until the batch is full or its time-out has passed.
    return [] if first is None else [first, *consumer.consume(_BATCH_MESSAGES - 1, 0)]
