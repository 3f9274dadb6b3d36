"""Commands that start while Kafka is down report it and exit."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.process.database import POSTGRES_FOLDER
from tests.support.server_process import run_anabranch

UNREACHABLE_KAFKA_OPTIONS = (
    "--set",
    "kafka.bootstrap_servers=127.0.0.1:9",
    "--set",
    "kafka.start_timeout_s=2",
    "--set",
    'ingest.sources={"*": []}',
)


@pytest.mark.parametrize(
    "command",
    [
        ("up", "--port", "0"),
        ("query", "What holds?"),
        ("ingest", "/dev/stdin"),
        ("worker",),
        ("api", "--port", "0"),
    ],
)
def test_start_without_kafka_exits_7_with_remedy(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "data" / POSTGRES_FOLDER).mkdir(parents=True)
    (tmp_path / "data" / "log-kind").write_text("kafka\n")
    done = run_anabranch(*command, "--data", str(tmp_path / "data"), *UNREACHABLE_KAFKA_OPTIONS)
    assert done.returncode == 7, done.stderr
    assert done.stderr.count("kafka_unreachable") == 1
    assert "Kafka at 127.0.0.1:9 did not answer within 2 s. [KAFKA_UNREACHABLE]" in done.stderr
    assert "ANABRANCH_KAFKA__BOOTSTRAP_SERVERS" in done.stderr
    assert len(done.stderr.splitlines()) < 10, "librdkafka says nothing"
