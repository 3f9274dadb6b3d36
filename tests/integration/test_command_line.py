from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_unknown_environment_setting_exits_2_and_suggests_nearest() -> None:
    done = run_command("config", "show", ANABRANCH_INGEST__MAX_BYTE="1")
    assert done.returncode == 2
    assert "ANABRANCH_INGEST__MAX_BYTES" in done.stderr


def test_output_into_pipe_is_complete(tmp_path: Path) -> None:
    done = run_command("doctor", "--json", "--data", str(tmp_path / "nothing"))
    assert done.returncode == int(not json.loads(done.stdout)["ok"])
    assert not (tmp_path / "nothing").exists()


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
