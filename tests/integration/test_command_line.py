from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli import COMMANDS, main
from sql.operations.migrate import migrate, read_migrations
from sql.operations.monitoring import (
    fetch_migration_status,
    inspect_database,
    list_pending_migrations,
)


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")
    }
    return subprocess.run(
        [sys.executable, "-m", "anabranch", *arguments],
        capture_output=True,
        text=True,
        env=inherited | environment,
        check=False,
    )


def test_help_imports_neither_faust_nor_numpy_nor_the_database() -> None:
    program = (
        "import sys\nfrom anabranch.cli import main\nmain(['--help'])\n"
        "print(sorted(set(sys.modules) & {'faust', 'numpy', 'asyncpg', 'onnxruntime', "
        "'fastapi'}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in COMMANDS)


def test_unknown_option_exits_2_as_usage_error() -> None:
    done = run_command("query", "--colour", "red", "x")
    assert done.returncode == 2
    assert done.stdout == ""


def test_unknown_environment_setting_exits_2_and_suggests_nearest() -> None:
    done = run_command("config", "show", ANABRANCH_INGEST__MAX_BYTE="1")
    assert done.returncode == 2
    assert "ANABRANCH_INGEST__MAX_BYTES" in done.stderr


def test_unreachable_server_exits_7(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "x", "--server", "http://127.0.0.1:9"]) == 7
    assert "SERVER_UNREACHABLE" in capsys.readouterr().err


def test_output_into_pipe_is_complete(tmp_path: Path) -> None:
    done = run_command("doctor", "--json", "--data", str(tmp_path / "nothing"))
    assert done.returncode == int(not json.loads(done.stdout)["ok"])
    assert not (tmp_path / "nothing").exists()


def test_closed_output_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m anabranch config schema | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{0\n", "")


async def test_pending_migrations_are_listed(empty_database: str) -> None:
    assert await list_pending_migrations(empty_database) == [
        migration.file for migration in read_migrations()
    ]
    await migrate(empty_database)
    state = await inspect_database(empty_database)
    assert (state.version >= 15, state.pending) == (True, [])
    assert state.vector is not None
    assert all(
        row["applied_at"] is not None for row in await fetch_migration_status(empty_database)
    )
