"""A real Kafka node, started once for all processes of a test run; each test has its own topics by
a prefix of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from streams.kafka.broker import Broker, find_missing_prerequisite
from streams.kafka.client_settings import KafkaClientSettings
from tests.support.postgres_fixture import choose_service_folder, lock_file, run_in_thread

TEST_BROKER_PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "log.index.size.max.bytes": "65536",
}
"""Tests miss a killed worker sooner than any real one would be missed, and have many small
partitions, whose index files are made in full size.
"""


@contextmanager
def run_broker(properties: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A node of one's own, with more `properties`. It and its files are gone when the context is
    left.
    """
    folder = Path(tempfile.mkdtemp(prefix="anabranch-kafka-", dir=choose_service_folder()))
    broker = Broker(
        folder, heap_mb=256, properties={**TEST_BROKER_PROPERTIES, **(properties or {})}
    )
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


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def join_broker(run_folder: Path) -> Iterator[Broker]:
    """The node of this test run: the first process starts it, and stops it after the others left.

    `run_folder` is the same for all processes of the run and for no other run.
    """
    users, place = run_folder / "kafka-users", run_folder / "kafka-folder"
    user = users / str(os.getpid())
    with lock_file(run_folder / "kafka-lock"):
        users.mkdir(exist_ok=True)
        is_starter = not place.exists()
        if is_starter:
            prefix = "anabranch-kafka-"
            place.write_text(tempfile.mkdtemp(prefix=prefix, dir=choose_service_folder()))
        folder = Path(place.read_text())
        broker = Broker(folder, heap_mb=512, properties=TEST_BROKER_PROPERTIES)
        run_in_thread(broker.start)
        user.touch()
    try:
        yield broker
    finally:
        user.unlink()
        if is_starter:
            # A process that was killed has left its file.
            while any(is_running(int(other.name)) for other in users.iterdir()):
                time.sleep(0.1)
            run_in_thread(broker.stop)
            shutil.rmtree(folder, ignore_errors=True)
            place.unlink()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Shared with the other test processes: a test that stops a node runs one of its own."""
    require_kafka()
    run_folder = tmp_path_factory.getbasetemp()
    # Below pytest-xdist each process has a folder of its own in the run's folder.
    if "PYTEST_XDIST_WORKER" in os.environ:
        run_folder = run_folder.parent
    with join_broker(run_folder) as broker:
        yield broker


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
