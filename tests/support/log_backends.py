"""Select the log of a test: the Postgres table or real Kafka."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.config.settings import Settings
from anabranch.kafka.settings import build_kafka_settings
from services.storage import Storage
from sql.log.event_log import PgLog
from streams.kafka.client import KafkaClientSettings
from tests.support.eventually import eventually

on_both_logs = pytest.mark.parametrize(
    "log_kind", ["postgres", pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True
)
long_on_kafka = pytest.mark.parametrize(
    "log_kind",
    ["postgres", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])],
    indirect=True,
)
long_on_postgres = pytest.mark.parametrize(
    "log_kind",
    [
        pytest.param("postgres", marks=pytest.mark.long),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ],
    indirect=True,
)
on_kafka = pytest.mark.parametrize(
    "log_kind", [pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True
)
PARTITIONS = 3


@pytest.fixture
def log_kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "postgres"))


@pytest.fixture
def log_settings(log_kind: str, request: pytest.FixtureRequest) -> list[str]:
    """Return the log's settings as `section.key=value`, none for Postgres, the default."""
    if log_kind == "postgres":
        return []
    kafka: KafkaClientSettings = request.getfixturevalue("kafka_settings")
    return [
        f"kafka.bootstrap_servers={kafka.bootstrap_servers}",
        f"kafka.topic_prefix={kafka.topic_prefix}",
        f"kafka.partitions={PARTITIONS}",
    ]


async def expire_topic(storage: Storage, settings: Settings, topic: str) -> None:
    """Expire all records of the topic, as when its retention has passed."""
    if settings.log_kind != "postgres":
        await truncate_topic(storage, settings, topic)
        return
    assert isinstance(storage.log, PgLog)
    await storage.pool.execute(
        "update events set appended_at = appended_at - interval '30 days' where topic = $1", topic
    )

    async def expire_and_fetch_bounds() -> tuple[int, int]:
        await storage.log.expire()
        return (await storage.log.fetch_offset_bounds(topic))[0]

    await eventually(expire_and_fetch_bounds, lambda bounds: bounds == (0, 0))


async def truncate_topic(storage: Storage, settings: Settings, topic: str) -> None:
    """Delete all records of the topic, as its retention does in the end."""
    if settings.log_kind == "postgres":
        await storage.pool.execute("delete from events where topic = $1", topic)
        return
    kafka = build_kafka_settings(settings.kafka)
    ends = [
        TopicPartition(kafka.topic_prefix + topic, partition, OFFSET_END)
        for partition in await storage.fetch_ends(topic)
    ]
    client = AdminClient({**kafka.to_librdkafka_config()})
    for future in client.delete_records(ends).values():
        await asyncio.wrap_future(future)
