from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

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
