"""A topic of numbers on real Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schemas.topics import Record
from streams.kafka.kafka_log import KafkaClientSettings, KafkaLog

TOPIC = "things"


@pytest.fixture
async def log(kafka_settings: KafkaClientSettings) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(kafka_settings)
    await log.create_topics({TOPIC: 6}, retention_ms={})
    yield log
    await log.close()


async def append_numbers(log: KafkaLog, numbers: range, topic: str = TOPIC) -> None:
    await log.append(
        [Record(topic, str(number).encode(), str(number).encode()) for number in numbers]
    )
