from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli import GROUPS, HELP, application, main
from anabranch.cli.exits import exit_code
from anabranch.cli.ingest import seconds
from anabranch.ingestion import gather_sources
from schemas.errors import AnabranchError, ConfigurationError, DatabaseUnavailable, FatalError, GenerationMismatch, NotFound, PermanentError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
    return subprocess.run([sys.executable, "-m", "anabranch", *arguments], capture_output=True, text=True, env=kept | environment, check=False)


def test_help_imports_neither_faust_nor_numpy_nor_the_database() -> None:
    program = "import sys\nfrom anabranch.cli import main\nmain(['--help'])\nprint(sorted(set(sys.modules) & {'faust', 'numpy', 'asyncpg', 'onnxruntime', 'fastapi'}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in GROUPS)


@pytest.mark.parametrize("command", sorted(GROUPS))
def test_every_command_is_there_and_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    application()([command, "--help"])
    assert capsys.readouterr().out.startswith(f"Usage: anabranch {command}")
    assert HELP[command].endswith((".", "?"))


def test_a_wrong_option_is_a_usage_error_with_exit_code_2() -> None:
    done = run("query", "--colour", "red", "x")
    assert done.returncode == 2
    assert done.stdout == ""


def test_an_unknown_setting_in_the_environment_exits_2_and_names_the_nearest() -> None:
    done = run("config", "show", ANABRANCH_INGEST__MAX_BYTE="1")
    assert done.returncode == 2
    assert "ANABRANCH_INGEST__MAX_BYTES" in done.stderr


def test_json_has_a_schema_version_and_nothing_else_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


def test_a_server_that_does_not_answer_is_exit_code_7(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "x", "--server", "http://127.0.0.1:9"]) == 7
    assert "SERVER_UNREACHABLE" in capsys.readouterr().err


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
    (tmp_path / "deep").mkdir()
    for name in ("a.md", "b.pdf", ".hidden.md", "deep/c.md"):
        (tmp_path / name).write_text("x")
    found = [Path(source.path).name for source in gather_sources([str(tmp_path)], glob="*.md", recursive=False)]
    assert found == ["a.md"]
    deep = [Path(source.path).name for source in gather_sources([str(tmp_path)], glob="*", recursive=True)]
    assert deep == ["a.md", "b.pdf", "c.md"]
    assert [source.kind for source in gather_sources(["-", "https://example.org/x"], glob="*", recursive=False)] == ["stdin", "url"]
