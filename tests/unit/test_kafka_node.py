"""The local Kafka node, without starting it.

Committed and fetched offsets of a consumer, without a broker.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from schemas.errors import ConfigurationError, DatabaseUnavailable, FatalError
from schemas.ports.consumers import NoOffsetStore, OffsetStore
from streams.kafka.assignment import PartitionAssignment
from streams.kafka.broker import (
    Broker,
    fetch_jars,
    find_missing_prerequisite,
    get_default_jars_dir,
    parse_java_major,
    read_kafka_version,
)
from streams.kafka.faust_app import FaustApp

PARTITION = TP("topic", 0)
OTHER_PARTITION = TP("topic", 1)


class FakeConsumerThread:
    """Faust's broker thread, which accepts or refuses commits."""

    def __init__(self, accepts: bool) -> None:
        self.accepts = accepts
        self.fetching: asyncio.Future[Set[TP]] = asyncio.get_running_loop().create_future()
        self.arrives = asyncio.Event()

    async def commit(self, offsets: Mapping[Any, int]) -> bool:
        return self.accepts

    async def getmany(self, active: Set[TP], timeout: float) -> Mapping[TP, list[str]]:
        """Fetch like aiokafka: `active` is read when records arrive; empty means all partitions."""
        self.fetching.set_result(active)
        await self.arrives.wait()
        return {tp: ["record"] for tp in (PARTITION, OTHER_PARTITION) if not active or tp in active}

    def assignment(self) -> set[TP]:
        return {PARTITION}


class FakeOffsetStore(NoOffsetStore):
    """Stores offsets, or raises the given errors in turn."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.stored_offsets: list[Mapping[int, int]] = []

    async def store_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        if (error := self.answers.pop(0) if self.answers else None) is not None:
            raise error
        self.stored_offsets.append(offsets)


def make_consumer(accepts: bool, tables: OffsetStore | None = None) -> Any:
    arguments = {
        "bootstrap_servers": "127.0.0.1:1",
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
    }
    app = FaustApp(
        "group",
        "topic",
        PartitionAssignment(
            "topic", lambda partition: pytest.fail("nothing is assigned here"), "group", tables
        ),
        arguments,
    )
    consumer: Any = app.consumer
    consumer._thread.thread_loop.close()  # The loop is never run.
    consumer._thread = FakeConsumerThread(accepts)
    return consumer


@pytest.mark.parametrize(("accepts", "committed_offset"), [(True, 5), (False, None)])
async def test_offset_rejected_by_group_is_not_committed(
    accepts: bool, committed_offset: int | None
) -> None:
    reader = make_consumer(accepts)
    assert await reader._commit_offsets({PARTITION: 5}) is accepts
    assert reader._committed_offset[PARTITION] == committed_offset


async def test_offset_not_stored_in_tables_is_retried() -> None:
    tables = FakeOffsetStore(DatabaseUnavailable("away"), None)
    reader = make_consumer(accepts=True, tables=tables)
    reader._acked[PARTITION] += [3, 4]
    assert await reader.force_commit() is False
    assert reader._committed_offset[PARTITION] is None and tables.stored_offsets == []
    assert await reader.force_commit() is True
    assert reader._committed_offset[PARTITION] == 5 and tables.stored_offsets == [{0: 5}]


async def test_restored_tables_stop_commits_and_reading() -> None:
    reader = make_consumer(
        accepts=True, tables=FakeOffsetStore(FatalError("older", code="TABLES_RESTORED"))
    )
    assert await reader._commit_offsets({PARTITION: 5}) is False
    with pytest.raises(FatalError, match="older"):
        reader.app.assignment.failure.result()


async def test_revocation_does_not_change_a_fetch_in_flight() -> None:
    reader = make_consumer(accepts=True)
    reader._set_active_tps({PARTITION})
    waiting = asyncio.ensure_future(reader._wait_next_records(1.0))
    await reader._thread.fetching
    await reader.on_partitions_revoked({PARTITION})
    reader._thread.arrives.set()
    records, active = await waiting
    assert set(records) == set(active) == {PARTITION}


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder in which programs are looked up."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return programs


def install_program(folder: Path, name: str, output: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea"', 25),
        ("command not found", None),
    ],
)
def test_java_major_version_is_parsed(text: str, major: int | None) -> None:
    assert parse_java_major(text) == major


def test_missing_java_is_reported(bare_machine: Path, tmp_path: Path) -> None:
    assert "Java 17" in (find_missing_prerequisite(tmp_path / "jars") or "")


def test_outdated_java_is_reported_with_its_version(bare_machine: Path, tmp_path: Path) -> None:
    install_program(bare_machine, "java", 'openjdk version "11.0.2"')
    assert "Java 11" in (find_missing_prerequisite(tmp_path / "jars") or "")


def test_maven_is_required_only_without_jars(bare_machine: Path, tmp_path: Path) -> None:
    install_program(bare_machine, "java", 'openjdk version "17.0.1"')
    jars = tmp_path / "jars"
    assert "mvn" in (find_missing_prerequisite(jars) or "")
    jars.mkdir()
    assert find_missing_prerequisite(jars) is None


async def test_missing_java_error_has_remedy(bare_machine: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await fetch_jars(tmp_path / "jars")
    assert "JDK 17" in caught.value.remedy


async def test_maven_error_is_reported_and_leaves_no_files(
    bare_machine: Path, tmp_path: Path
) -> None:
    install_program(bare_machine, "java", 'openjdk version "17.0.1"')
    (bare_machine / "mvn").write_text("#!/bin/sh\necho 'no such host'; exit 1\n")
    (bare_machine / "mvn").chmod(0o755)
    cache = tmp_path / "cache"
    with pytest.raises(ConfigurationError, match="no such host"):
        await fetch_jars(cache / "jars")
    assert list(cache.iterdir()) == []


def test_jars_folder_is_per_kafka_version() -> None:
    assert get_default_jars_dir().name == f"kafka-{read_kafka_version()}"


def test_folder_without_node_has_no_bootstrap_servers(tmp_path: Path) -> None:
    status = Broker(tmp_path).status()
    assert (status.is_running, status.pid, status.bootstrap_servers) == (False, None, None)
    with pytest.raises(ConfigurationError):
        _ = Broker(tmp_path).bootstrap_servers


def test_log_folder_is_private_to_owner(tmp_path: Path) -> None:
    node = Broker(tmp_path / "kafka")
    node._write_configuration()
    assert stat.S_IMODE((tmp_path / "kafka").stat().st_mode) == 0o700


def test_recycled_pid_is_not_taken_for_the_node(tmp_path: Path) -> None:
    (tmp_path / "kafka.pid").write_text(str(os.getpid()))
    assert not Broker(tmp_path).status().is_running
