"""The command line as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli import GROUPS, main


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
    return subprocess.run([sys.executable, "-m", "anabranch", *arguments], capture_output=True, text=True, env=kept | environment, check=False)


def test_help_imports_neither_faust_nor_numpy_nor_the_database() -> None:
    program = "import sys\nfrom anabranch.cli import main\nmain(['--help'])\nprint(sorted(set(sys.modules) & {'faust', 'numpy', 'asyncpg', 'onnxruntime', 'fastapi'}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in GROUPS)


def test_a_wrong_option_is_a_usage_error_with_exit_code_2() -> None:
    done = run("query", "--colour", "red", "x")
    assert done.returncode == 2
    assert done.stdout == ""


def test_an_unknown_setting_in_the_environment_exits_2_and_names_the_nearest() -> None:
    done = run("config", "show", ANABRANCH_INGEST__MAX_BYTE="1")
    assert done.returncode == 2
    assert "ANABRANCH_INGEST__MAX_BYTES" in done.stderr


def test_a_server_that_does_not_answer_is_exit_code_7(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "x", "--server", "http://127.0.0.1:9"]) == 7
    assert "SERVER_UNREACHABLE" in capsys.readouterr().err


def test_what_a_command_printed_is_whole_when_it_goes_into_a_pipe(tmp_path: Path) -> None:
    done = run("doctor", "--json", "--data", str(tmp_path / "nothing"))
    assert done.returncode == int(not json.loads(done.stdout)["ok"])
    assert not (tmp_path / "nothing").exists()


def test_a_reader_that_has_enough_is_no_failure() -> None:
    command = f"{sys.executable} -m anabranch config schema | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{0\n", "")
