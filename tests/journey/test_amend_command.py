from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg

from tests.support.eventually import eventually_blocking
from tests.support.server_process import run_anabranch, run_up

NOTE = "# Lock\n\nThe keeper of the lock at Ardmore raises the sluice at five past six.\n"


def run_json(*arguments: str, expected: int = 0) -> dict[str, Any]:
    done = run_anabranch(*arguments, "--json")
    assert done.returncode == expected, done.stderr
    return dict(json.loads(done.stdout))


def test_amend_command_and_integrity_check_exit_code(folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "lock.md"
    note.write_text(NOTE)
    here = ("--data", str(folder))
    with run_up(folder) as (_, ready):
        document = run_json("ingest", str(note), "--tag", "old", "--wait", *here)["documents"][0][
            "document_id"
        ]
        amendment = (
            "--title",
            "Sluices",
            "--tag",
            "a",
            "--tag",
            "b",
            "--collection",
            "basin",
            "--metadata",
            "year=2026",
            "--metadata",
            "by=Ana Sá",
        )
        assert (
            run_json("documents", "amend", document, *amendment, *here)["document_id"] == document
        )
        shown = eventually_blocking(
            lambda: run_json("documents", "show", document, *here),
            lambda shown: shown["title"] == "Sluices",
        )
        assert (shown["tags"], shown["collection"], shown["metadata"]) == (
            ["a", "b"],
            "basin",
            {"year": 2026, "by": "Ana Sá"},
        )
        assert shown["revision"] == 1
        wrong = run_anabranch("documents", "amend", document, "--metadata", "year", *here)
        assert (wrong.returncode, "NOT_AN_ASSIGNMENT" in wrong.stderr) == (2, True)
        assert run_anabranch("documents", "amend", document, *here).returncode == 2

        clean = run_json("db", "check", "--drained", *here)
        assert (clean["rows"], clean["problems"]["child_chunks"]) == (0, 0)
        asyncio.run(insert_orphaned_delta(ready["database_url"]))
        dirty = run_json("db", "check", *here, expected=1)
        assert {problem: rows for problem, rows in dirty["problems"].items() if rows} == {
            "lexical_counts": 1
        }


async def insert_orphaned_delta(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "insert into anabranch.lexical_deltas values ('g1', 'default', 'simple', 'ghost', 1)"
        )
    finally:
        await connection.close()
