from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.cli import COMMANDS, build_app, main
from anabranch.cli.errors import to_exit_code
from anabranch.cli.ingest import parse_duration_s
from anabranch.cli.ingest_batch import expand_paths
from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    DatabaseUnavailable,
    FatalError,
    GenerationMismatch,
    NotFound,
    PermanentError,
)


def test_usage_error_names_the_help_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["facts", "approve", "nope"])
    stderr = capsys.readouterr().err
    assert "nope" in stderr and "`anabranch facts approve --help`" in stderr


def test_surplus_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["audit", "list"])
    stderr = capsys.readouterr().err
    assert "Unexpected argument: list." in stderr and "Tokens" not in stderr


def test_help_leaves_empty_defaults_out(capsys: pytest.CaptureFixture[str]) -> None:
    build_app()(["ingest", "--help"])
    printed = capsys.readouterr().out
    assert "[default: 16]" in printed
    assert "()" not in printed and "None" not in printed


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    build_app()([command, "--help"])
    assert capsys.readouterr().out.startswith(f"Usage: anabranch {command}")
    assert COMMANDS[command][1].endswith((".", "?"))


def test_json_output_has_schema_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


def test_missing_path_exits_with_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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
def test_exit_code_reflects_error_class(error: AnabranchError, code: int) -> None:
    assert to_exit_code(error) == code


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("10m", 600), ("2h", 7200), ("7", 7)])
def test_durations_are_parsed_to_seconds(text: str, expected: float) -> None:
    assert parse_duration_s(text) == expected
    with pytest.raises(ConfigurationError):
        parse_duration_s("soon")


def test_folder_is_expanded_by_glob_and_recursion(tmp_path: Path) -> None:
    for folder in ("deep", ".git", "deep/.cache/old"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a.md", "b.pdf", ".hidden.md", "deep/c.md", ".git/config", "deep/.cache/old/d.md"):
        (tmp_path / name).write_text("x")
    found = [
        Path(source.path).name
        for source in expand_paths([str(tmp_path)], glob="*.md", recursive=False)[0]
    ]
    assert found == ["a.md"]
    deep = [
        Path(source.path).name
        for source in expand_paths([str(tmp_path)], glob="*", recursive=True)[0]
    ]
    assert deep == ["a.md", "b.pdf", "c.md"]
    asked_for = [
        Path(source.path).name
        for source in expand_paths([str(tmp_path / ".git")], glob="*", recursive=True)[0]
    ]
    assert asked_for == ["config"], "a hidden folder that is named is meant"
    assert [
        source.kind
        for source in expand_paths(["-", "https://example.org/x"], glob="*", recursive=False)[0]
    ] == ["stdin", "url"]
