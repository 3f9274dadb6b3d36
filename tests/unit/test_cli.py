from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.cli import GROUPS, HELP, application, main
from anabranch.cli.exits import exit_code
from anabranch.cli.ingest import seconds
from anabranch.ingestion import gather_sources
from schemas.errors import AnabranchError, ConfigurationError, DatabaseUnavailable, FatalError, GenerationMismatch, NotFound, PermanentError


@pytest.mark.parametrize("command", sorted(GROUPS))
def test_every_command_is_there_and_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    application()([command, "--help"])
    assert capsys.readouterr().out.startswith(f"Usage: anabranch {command}")
    assert HELP[command].endswith((".", "?"))


def test_json_has_a_schema_version_and_nothing_else_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


def test_a_path_that_is_not_there_is_exit_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["ingest", str(tmp_path / "nothing.pdf"), "--data", str(tmp_path)]) == 3
    assert "nothing.pdf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (GenerationMismatch("x"), 2),
        (FatalError("x", code="MISCONFIGURED"), 2),
        (NotFound("x"), 3),
        (DatabaseUnavailable("x"), 7),
        (PermanentError("x"), 1),
        (FatalError("x"), 1),
    ],
)
def test_exit_codes_say_what_kind_of_failure_it_was(error: AnabranchError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("10m", 600), ("2h", 7200), ("7", 7)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected
    with pytest.raises(ConfigurationError):
        seconds("soon")


def test_a_folder_gives_its_files_and_only_those_of_the_glob_and_deeper_ones_on_request(tmp_path: Path) -> None:
    for folder in ("deep", ".git", "deep/.cache/old"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a.md", "b.pdf", ".hidden.md", "deep/c.md", ".git/config", "deep/.cache/old/d.md"):
        (tmp_path / name).write_text("x")
    found = [Path(source.path).name for source in gather_sources([str(tmp_path)], glob="*.md", recursive=False)]
    assert found == ["a.md"]
    deep = [Path(source.path).name for source in gather_sources([str(tmp_path)], glob="*", recursive=True)]
    assert deep == ["a.md", "b.pdf", "c.md"]
    asked_for = [Path(source.path).name for source in gather_sources([str(tmp_path / ".git")], glob="*", recursive=True)]
    assert asked_for == ["config"], "a hidden folder that is named is meant"
    assert [source.kind for source in gather_sources(["-", "https://example.org/x"], glob="*", recursive=False)] == ["stdin", "url"]
