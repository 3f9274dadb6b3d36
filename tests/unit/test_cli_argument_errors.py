from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from anabranch.cli import main
from anabranch.cli.ingest_batch import expand_paths
from anabranch.process.data_folder import lock_folder
from schemas.errors import ConfigurationError
from schemas.questions import SearchRequest


def test_file_as_data_directory_is_rejected_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    with (
        pytest.raises(ConfigurationError, match=r"notes\.md cannot be a data folder") as caught,
        lock_folder(tmp_path / "notes.md"),
    ):
        pass
    assert "--data" in caught.value.remedy


def test_empty_path_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="path is empty"):
        expand_paths([""], glob="*", recursive=False)


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_dash_path_means_stdin(path: str) -> None:
    assert [source.kind for source in expand_paths([path], glob="*", recursive=False)[0]] == [
        "stdin"
    ]


@pytest.mark.parametrize("question", ["   ", "?!", "…"])
def test_query_without_words_is_rejected(question: str) -> None:
    with pytest.raises(ValidationError, match="no word"):
        SearchRequest(query=question)


@pytest.mark.parametrize(
    "arguments",
    [
        ("documents", "list", "--failed"),
        ("documents", "list", "--failed", "--state", "failed"),
        ("replay", "start", "--from", "extract", "--dry-run"),
        ("replay", "status", "00000000-0000-8000-8000-000000000000"),
        ("reindex", "--set", "chunk.child_tokens=120", "--dry-run"),
    ],
)
def test_option_and_command_aliases_are_accepted(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    assert main([*arguments, "--data", str(tmp_path / "none")]) == 3


def test_failed_flag_contradicts_searchable_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["documents", "list", "--failed", "--state", "searchable", "--data", str(tmp_path)])
        == 2
    )
    assert "cannot be combined" in capsys.readouterr().err


def test_empty_feedback_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "00000000-0000-8000-8000-000000000000", "--data", str(tmp_path)]) == 2
    assert "--up" in capsys.readouterr().err


@pytest.mark.parametrize("grade", ["9", "-1", "", "x"])
def test_grade_outside_0_to_3_is_rejected(
    grade: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "feedback",
                "00000000-0000-8000-8000-000000000000",
                f"--chunk=abc={grade}",
                "--data",
                str(tmp_path),
            ]
        )
        == 2
    )
    assert "0, 1, 2 or 3" in capsys.readouterr().err


def test_stopping_kafka_that_is_not_running_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kafka", "stop", "--data", str(tmp_path)]) == 0
    assert "no Kafka was running" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"), [("--user", "user:ana"), ("--group", "group:finance")]
)
def test_prefixed_user_or_group_is_refused_when_creating_key(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "create", option, value, "--data", str(tmp_path / "none")]) == 2
    assert f"Omit the prefix: {option} {value.partition(':')[2]}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["rotate", "revoke"])
def test_full_key_instead_of_id_is_refused_without_echo(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for server in ((), ("--server", "http://127.0.0.1:9")):
        assert (
            main(
                [
                    "keys",
                    command,
                    "ab_0123456789abcdef_5ec4e7",
                    *server,
                    "--data",
                    str(tmp_path / "none"),
                ]
            )
            == 2
        )
        stderr = capsys.readouterr().err
        assert "Use the id alone: 0123456789abcdef" in stderr and "5ec4e7" not in stderr
        assert main(["keys", command, "operations", *server, "--data", str(tmp_path / "none")]) == 2
        assert "Invalid API key id 'operations'." in capsys.readouterr().err


def test_missing_folder_is_not_added_as_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(["source", "add", "folder", "library", "librari", "--data", str(tmp_path / "none")])
        == 3
    )
    assert "No such folder: librari." in capsys.readouterr().err


def test_down_reports_folder_without_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", "--data", str(tmp_path / "none")]) == 0
    assert f"no server was running in {tmp_path / 'none'}" in capsys.readouterr().err
