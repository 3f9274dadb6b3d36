from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from anabranch.cli import main
from anabranch.ingestion import gather_sources
from anabranch.process.data_folder import locked
from schemas.errors import ConfigurationError
from schemas.questions import SearchRequest


def test_a_file_is_no_data_folder_and_the_error_names_it(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(ConfigurationError, match=r"notes\.md cannot be a data folder") as caught, locked(tmp_path / "notes.md"):
        pass
    assert "--data" in caught.value.remedy


def test_an_empty_path_does_not_mean_this_folder() -> None:
    with pytest.raises(ConfigurationError, match="empty path"):
        gather_sources([""], glob="*", recursive=False)


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_a_dash_is_stdin(path: str) -> None:
    assert [source.kind for source in gather_sources([path], glob="*", recursive=False)] == ["stdin"]


@pytest.mark.parametrize("question", ["   ", "?!", "…"])
def test_a_question_without_a_word_is_no_question(question: str) -> None:
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
def test_another_name_of_an_option_or_command_is_taken_and_the_missing_folder_is_what_stops_it(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert main([*arguments, "--data", str(tmp_path / "none")]) == 3


def test_failed_documents_cannot_be_searchable_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["documents", "list", "--failed", "--state", "searchable", "--data", str(tmp_path)]) == 2
    assert "contradict each other" in capsys.readouterr().err


def test_an_answer_of_which_nothing_is_said_is_no_feedback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "00000000-0000-8000-8000-000000000000", "--data", str(tmp_path)]) == 2
    assert "--up" in capsys.readouterr().err


@pytest.mark.parametrize("grade", ["9", "-1", "", "x"])
def test_a_grade_is_0_to_3(grade: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "00000000-0000-8000-8000-000000000000", f"--chunk=abc={grade}", "--data", str(tmp_path)]) == 2
    assert "0, 1, 2 or 3" in capsys.readouterr().err


def test_stopping_what_does_not_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka", "stop", "--data", str(tmp_path)]) == 0
    assert "no Kafka runs" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--user", "user:ana"), ("--group", "group:finance")])
def test_key_for_a_name_with_prefix_is_refused(option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", option, value, "--data", str(tmp_path / "none")]) == 2
    assert f"Leave it out: {option} {value.partition(':')[2]}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["rotate", "revoke"])
def test_whole_key_in_place_of_its_id_is_refused_without_its_secret(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for server in ((), ("--server", "http://127.0.0.1:9")):
        assert main(["keys", command, "ab_0123456789abcdef_5ec4e7", *server, "--data", str(tmp_path / "none")]) == 2
        said = capsys.readouterr().err
        assert "Give its id alone: 0123456789abcdef" in said and "5ec4e7" not in said
        assert main(["keys", command, "operations", *server, "--data", str(tmp_path / "none")]) == 2
        assert "'operations' is not the id of an API key." in capsys.readouterr().err


def test_folder_that_is_missing_is_not_added_as_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["source", "add", "folder", "library", "librari", "--data", str(tmp_path / "none")]) == 3
    assert "No folder librari." in capsys.readouterr().err


def test_down_names_the_folder_that_has_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--data", str(tmp_path / "none")]) == 0
    assert f"no server was running in {tmp_path / 'none'}" in capsys.readouterr().err
