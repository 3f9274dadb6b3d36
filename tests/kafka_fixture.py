"""A real Kafka node, started once for a test session; each test has its own topics by a prefix of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from streams.kafka.broker import Broker, missing_prerequisite
from streams.kafka.settings import KafkaSettings


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    if missing := missing_prerequisite():
        if os.environ.get("ANABRANCH_REQUIRE_KAFKA") == "1":
            pytest.fail(f"Kafka is required here: {missing}")
        pytest.skip(f"no real Kafka: {missing}")
    root = Path(tempfile.mkdtemp(prefix="anabranch-kafka-"))
    broker = Broker(root, heap_mb=256)
    with ThreadPoolExecutor(1) as thread:  # the session may have an event loop of its own
        try:
            thread.submit(lambda: asyncio.run(broker.start())).result()
            yield broker
        finally:
            thread.submit(lambda: asyncio.run(broker.stop())).result()
            shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_broker: Broker) -> str:
    return kafka_broker.bootstrap_servers


@pytest.fixture
def kafka_settings(kafka_bootstrap: str) -> KafkaSettings:
    return KafkaSettings(kafka_bootstrap, topic_prefix=f"test-{uuid4().hex[:12]}.")
