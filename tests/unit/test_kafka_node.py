"""The local Kafka node, without starting it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from schemas.errors import ConfigurationError
from streams.kafka.broker import Broker
from streams.kafka.jars import (
    fetch_jars,
    find_missing_prerequisite,
    get_default_jars_dir,
    parse_java_major,
    read_kafka_version,
)


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
