from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.cli import build_app
from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from anabranch.kafka.acls import (
    KafkaPrincipals,
    build_required_grants,
    find_foreign_writers,
    format_commands,
)
from anabranch.kafka.settings import resolve_topic_partitions
from streams.kafka.acls import Grant


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    sets = [
        "kafka.bootstrap_servers=127.0.0.1:1",
        "kafka.topic_prefix=x.",
        'ingest.topics={"raw.crm": ["crm"]}',
    ]
    return load_settings(
        data_dir=tmp_path, sets=[*sets, "kafka.principals=User:anabranch-api,User:anabranch-worker"]
    )


def list_writers(grants: list[Grant], topic: str) -> set[str]:
    return {
        grant.principal.removeprefix("User:")
        for grant in grants
        if grant.can_write and grant.covers(f"x.{topic}")
    }


def test_producers_may_write_only_their_raw_topic(settings: Settings) -> None:
    grants, ours = (
        build_required_grants(settings, KafkaPrincipals()),
        {"anabranch-api", "anabranch-worker"},
    )
    found = {
        topic: list_writers(grants, topic)
        for topic in (*resolve_topic_partitions(settings), "embedded.g2")
    }
    assert found["raw"] == {*ours, "producer"} and found["raw.crm"] == {"crm"}
    assert all(
        found[topic] and found[topic] <= ours for topic in found if not topic.startswith("raw")
    )
    assert find_foreign_writers(settings, grants) == {}


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("x.control", "literal", {"User:mallory": ["control"]}),
        ("x.acc", "prefixed", {"User:mallory": ["accepted"]}),
        ("control", "literal", {}),
        ("x.raw", "prefixed", {}),
    ],
)
def test_foreign_writers_are_detected(
    settings: Settings, name: str, pattern: str, expected: dict[str, list[str]]
) -> None:
    for operation in ("Write", "All"):
        assert (
            find_foreign_writers(
                settings, [Grant("User:mallory", "topic", name, pattern, (operation,))]
            )
            == expected
        )
    assert (
        find_foreign_writers(settings, [Grant("User:mallory", "topic", name, pattern, ("Read",))])
        == {}
    )
    assert (
        find_foreign_writers(settings, [Grant("User:mallory", "group", name, pattern, ("Write",))])
        == {}
    )


def test_acls_command_prints_table_json_and_shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def printed(*arguments: str) -> str:
        build_app()(
            ["topics", "acls", "--data", str(tmp_path), "--producer", "User:shop", *arguments],
            result_action="return_value",
        )
        return capsys.readouterr().out

    assert "User:shop" in printed()
    [raw] = [
        grant
        for grant in json.loads(printed("--json"))["acls"]
        if (grant["principal"], grant["name"]) == ("User:shop", "raw")
    ]
    assert raw == {
        "principal": "User:shop",
        "resource": "topic",
        "name": "raw",
        "pattern": "literal",
        "operations": ["Write", "Describe"],
    }
    commands = printed("--commands").splitlines()
    expected = (
        "--allow-principal 'User:shop' --operation Write --operation Describe --topic "
        "'raw' --resource-pattern-type literal"
    )
    assert all(
        command.startswith("kafka-acls.sh --bootstrap-server BOOTSTRAP_SERVER")
        for command in commands
    )
    assert sum(expected in command for command in commands) == 1
    assert (
        len(
            format_commands(
                [Grant("User:a", "cluster", "kafka-cluster", "literal", ("Describe",))], "b"
            )
        )
        == 1
    )
