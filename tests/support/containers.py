"""Postgres and Kafka from images, for `pytest --containers`."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from sql.embedded.server import ROLE, ROLES_SQL

POSTGRES_IMAGE = "pgvector/pgvector:pg18"
KAFKA_IMAGE = "apache/kafka:4.3.1"
PASSWORD = "only-for-tests"
START_TIMEOUT_S = 120
POSTGRES_COMMAND = (
    "postgres -c wal_level=logical -c max_connections=200 -c fsync=off -c full_page_writes=off"
)
KAFKA_SETTINGS = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
}


@dataclass(frozen=True, slots=True)
class ContainerPostgres:
    """The part of `EmbeddedPostgres` that tests use."""

    dsn: str
    superuser_dsn: str
    tcp_dsn: str
    password_file: Path


def require_docker() -> None:
    """Skip the test unless a Docker daemon answers."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no Docker")


@contextmanager
def run_postgres_container() -> Iterator[ContainerPostgres]:
    container = (
        DockerContainer(POSTGRES_IMAGE)
        .with_env("POSTGRES_PASSWORD", PASSWORD)
        .with_env(
            "POSTGRES_INITDB_ARGS", "--locale=C.UTF-8 --locale-provider=builtin --encoding=UTF8"
        )
        .with_command(POSTGRES_COMMAND)
        .with_exposed_ports(5432)
        # The image starts a server to initialize the data, and stops it, before the lasting one.
        .waiting_for(
            LogMessageWaitStrategy(
                "database system is ready to accept connections", times=2
            ).with_startup_timeout(START_TIMEOUT_S)
        )
    )
    with container, tempfile.TemporaryDirectory() as folder:
        container.copy_into_container(ROLES_SQL.read_bytes(), "/tmp/roles.sql")
        for command in (
            ["-d", "template1", "-f", "/tmp/roles.sql"],
            ["-c", f"alter role {ROLE} password '{PASSWORD}' createdb replication"],
            ["-c", f"grant pg_signal_backend to {ROLE}"],
        ):
            done = container.exec(["psql", "-v", "ON_ERROR_STOP=1", "-U", "postgres", *command])
            assert done.exit_code == 0, done.output.decode()
        address = f"{container.get_container_host_ip()}:{container.get_exposed_port(5432)}"
        password_file = Path(folder) / "pgpass"
        password_file.write_text(f"{address}:*:{ROLE}:{PASSWORD}\n")
        yield ContainerPostgres(
            dsn=f"postgresql://{ROLE}:{PASSWORD}@{address}/{ROLE}",
            superuser_dsn=f"postgresql://postgres:{PASSWORD}@{address}/{ROLE}",
            tcp_dsn=f"postgresql://{ROLE}@{address}/{ROLE}",
            password_file=password_file,
        )


@contextmanager
def run_kafka_container() -> Iterator[str]:
    """Yield the bootstrap address."""
    with socket.socket() as probe:  # the broker tells clients its port, so it is chosen before
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    container = (
        DockerContainer(KAFKA_IMAGE)
        .with_envs(**KAFKA_SETTINGS, KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://127.0.0.1:{port}")
        .with_bind_ports(9092, port)
        .waiting_for(
            LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(START_TIMEOUT_S)
        )
    )
    with container:
        yield f"127.0.0.1:{port}"
