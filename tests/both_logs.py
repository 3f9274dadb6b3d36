"""For tests that say which log they run on: the table in Postgres, or the real Kafka."""

from __future__ import annotations

import pytest

from streams.kafka.settings import KafkaSettings

on_both_logs = pytest.mark.parametrize("log_kind", ["postgres", pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
on_kafka = pytest.mark.parametrize("log_kind", [pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
PARTITIONS = 3


@pytest.fixture
def log_kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "postgres"))


@pytest.fixture
def log_sets(log_kind: str, request: pytest.FixtureRequest) -> list[str]:
    """The log as settings (`section.key=value`); none for the table, which is there without any."""
    if log_kind == "postgres":
        return []
    kafka: KafkaSettings = request.getfixturevalue("kafka_settings")
    return [f"kafka.bootstrap_servers={kafka.bootstrap_servers}", f"kafka.topic_prefix={kafka.topic_prefix}", f"kafka.partitions={PARTITIONS}"]
