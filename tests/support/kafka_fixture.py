"""A real Kafka node, started once for all processes of a test run; each test has its own topics by
a prefix of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from streams.kafka.broker import Broker, find_missing_prerequisite
from streams.kafka.client import KafkaClientSettings
from tests.support.postgres_fixture import choose_service_folder, run_in_thread
from tests.support.shared_service import find_run_folder, share_service

TEST_BROKER_PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "log.index.size.max.bytes": "65536",
}
"""Tests miss a killed worker sooner than any real one would be missed, and have many small
partitions, whose index files are made in full size.
"""
SHARED_HEAP_MB = 512


def _make_broker(folder: Path, heap_mb: int, properties: Mapping[str, str] | None = None) -> Broker:
    return Broker(
        folder, heap_mb=heap_mb, properties={**TEST_BROKER_PROPERTIES, **(properties or {})}
    )


@contextmanager
def run_broker(
    properties: Mapping[str, str] | None = None, *, heap_mb: int = 256
) -> Iterator[Broker]:
    """A node of one's own, with more `properties`. It and its files are gone when the context is
    left.
    """
    folder = Path(tempfile.mkdtemp(prefix="anabranch-kafka-", dir=choose_service_folder()))
    broker = _make_broker(folder, heap_mb, properties)
    try:
        run_in_thread(broker.start)
        yield broker
    finally:
        run_in_thread(broker.stop)
        shutil.rmtree(folder, ignore_errors=True)


def require_kafka() -> None:
    """Skip the test without Kafka, or fail it where Kafka is required."""
    if missing := find_missing_prerequisite():
        if os.environ.get("ANABRANCH_REQUIRE_KAFKA") == "1":
            pytest.fail(f"Kafka is required here: {missing}")
        pytest.skip(f"no real Kafka: {missing}")


@contextmanager
def _run_shared_broker() -> Iterator[dict[str, Any]]:
    with run_broker(heap_mb=SHARED_HEAP_MB) as broker:
        yield {"folder": str(broker.data_dir)}


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Shared with the other test processes: a test that stops a node runs one of its own."""
    require_kafka()
    run_folder = find_run_folder(tmp_path_factory)
    with share_service(run_folder, "kafka", _run_shared_broker) as service:
        yield _make_broker(Path(service["folder"]), SHARED_HEAP_MB)


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if not request.config.getoption("--containers"):
        yield request.getfixturevalue("kafka_broker").bootstrap_servers
        return
    from tests.support.containers import require_docker, run_kafka_container

    require_docker()
    with run_kafka_container() as address:
        yield address


@pytest.fixture
def kafka_settings(kafka_bootstrap: str) -> KafkaClientSettings:
    return KafkaClientSettings(kafka_bootstrap, topic_prefix=f"test-{uuid4().hex[:12]}.")


def list_topics(kafka: KafkaClientSettings) -> set[str]:
    """Return the topics with the prefix, without it."""
    found = AdminClient({**kafka.to_librdkafka_config()}).list_topics(timeout=60).topics
    prefix = kafka.topic_prefix
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


def alter_topics(kafka: KafkaClientSettings, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Alter the settings of topics as an operator does with kafka-configs.sh."""
    resources = []
    for topic, settings in topics.items():
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        name = kafka.topic_prefix + topic
        resources.append(ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries))
    admin = AdminClient({**kafka.to_librdkafka_config()})
    for future in admin.incremental_alter_configs(resources).values():
        future.result()
