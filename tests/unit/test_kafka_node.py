"""What can be said of the local Kafka node without starting it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from schemas.errors import ConfigurationError
from streams.kafka.broker import Broker
from streams.kafka.jars import default_jars_dir, fetch_jars, java_major, kafka_version, missing_prerequisite


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose programs are those in the folder returned."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return programs


def install(folder: Path, name: str, output: str) -> None:
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
def test_the_release_is_read_from_what_java_says(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_a_machine_without_java_is_told_so(bare_machine: Path, tmp_path: Path) -> None:
    assert "Java 17" in (missing_prerequisite(tmp_path / "jars") or "")


def test_an_old_java_is_told_its_number(bare_machine: Path, tmp_path: Path) -> None:
    install(bare_machine, "java", 'openjdk version "11.0.2"')
    assert "Java 11" in (missing_prerequisite(tmp_path / "jars") or "")


def test_maven_is_missed_only_while_the_jars_are(bare_machine: Path, tmp_path: Path) -> None:
    install(bare_machine, "java", 'openjdk version "17.0.1"')
    jars = tmp_path / "jars"
    assert "mvn" in (missing_prerequisite(jars) or "")
    jars.mkdir()
    assert missing_prerequisite(jars) is None


async def test_without_java_the_error_names_the_way_out(bare_machine: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await fetch_jars(tmp_path / "jars")
    assert "JDK 17" in caught.value.remedy


async def test_what_maven_says_is_passed_on_and_nothing_is_left_behind(bare_machine: Path, tmp_path: Path) -> None:
    install(bare_machine, "java", 'openjdk version "17.0.1"')
    (bare_machine / "mvn").write_text("#!/bin/sh\necho 'no such host'; exit 1\n")
    (bare_machine / "mvn").chmod(0o755)
    cache = tmp_path / "cache"
    with pytest.raises(ConfigurationError, match="no such host"):
        await fetch_jars(cache / "jars")
    assert list(cache.iterdir()) == []


def test_jars_of_each_version_have_a_folder_of_their_own() -> None:
    assert default_jars_dir().name == f"kafka-{kafka_version()}"


def test_a_folder_without_a_node_has_a_status_but_no_address(tmp_path: Path) -> None:
    status = Broker(tmp_path).status()
    assert (status.running, status.pid, status.bootstrap_servers) == (False, None, None)
    with pytest.raises(ConfigurationError):
        _ = Broker(tmp_path).bootstrap_servers


def test_other_accounts_cannot_enter_the_folder_of_the_log(tmp_path: Path) -> None:
    node = Broker(tmp_path / "kafka")
    node._write_configuration()
    assert stat.S_IMODE((tmp_path / "kafka").stat().st_mode) == 0o700


def test_a_recycled_process_number_is_not_taken_for_the_node(tmp_path: Path) -> None:
    (tmp_path / "kafka.pid").write_text(str(os.getpid()))
    assert not Broker(tmp_path).status().running
