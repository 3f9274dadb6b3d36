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
