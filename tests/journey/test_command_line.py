"""Commands: ingest, amend, dead letters and replays, with exit codes for scripts."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from anabranch.process.database import POSTGRES_FOLDER
from tests.support.eventually import eventually_blocking
from tests.support.server_process import NOTE, run_anabranch, run_json, run_up


def test_duplicate_ingest_query_and_delete_commands(folder: Path, tmp_path: Path) -> None:
    note, empty = tmp_path / "lock.md", tmp_path / "empty.md"
    note.write_text(NOTE)
    empty.write_text("")
    with run_up(folder):
        here = ("--data", str(folder))
        first = run_json("ingest", str(note), "--wait", *here)
        assert first["counts"] == {"searchable": 1, "failed": 0, "duplicate": 0}
        document = first["documents"][0]["document_id"]

        again = run_json("ingest", str(note), "--wait", *here)
        assert again["counts"] == {"searchable": 0, "failed": 0, "duplicate": 1}
        shown = run_anabranch("documents", "show", document, *here).stdout
        assert "1 (revision 2 changed nothing)" in shown
        assert "UNCHANGED" in shown

        forced = run_anabranch("ingest", str(note), "--wait", "--force", *here)
        assert forced.returncode == 0
        assert "1 duplicate" not in forced.stderr
        assert "1 searchable" in forced.stderr

        failed = run_anabranch("ingest", str(empty), str(note), "--quiet", *here)
        assert failed.returncode == 5
        assert "[EMPTY_DOCUMENT]\n  → Send the file's content" in failed.stderr

        query = run_anabranch("query", "When does the keeper raise the sluice?", "--stream", *here)
        assert query.returncode == 0
        assert "five past six" in query.stdout
        assert " ms\n" in query.stderr
        lines = [
            json.loads(line)
            for line in run_anabranch(
                "query", "When does the keeper raise the sluice?", "--stream", "--json", *here
            ).stdout.splitlines()
        ]
        assert (lines[0]["event"], lines[-1]["event"]) == ("started", "answer")
        assert "five past six" in lines[-1]["answer"]

        check_profile_options(*here)

        missing = run_anabranch("documents", "show", "00000000-0000-8000-8000-000000000000", *here)
        assert missing.returncode == 3
        assert "`anabranch documents list`" in missing.stderr
        assert "/v1/" not in missing.stderr

        unasked = run_anabranch("documents", "delete", document, *here)
        assert (unasked.returncode, unasked.stdout) == (2, "")
        assert "--yes" in unasked.stderr
        assert run_anabranch("documents", "delete", document, *here, stdin="n\n").returncode == 1
        assert run_anabranch("documents", "delete", document, *here, stdin="y\n").returncode == 0


def check_profile_options(*here: str) -> None:
    """The server takes the profiles and settings of a command, and checks them."""
    question = "When does the keeper raise the sluice?"
    for command in (("search",), ("query",), ("runs", "start", "--follow")):
        options = ("--profile", "rrf", "--profiles", "graph=small", "--override")
        shown = run_anabranch(*command, question, *options, "semantic.k=7", "--json", *here)
        assert shown.returncode == 0, shown.stderr
        result = json.loads(shown.stdout.splitlines()[-1] if "runs" in command else shown.stdout)
        assert result["trace"]["profile"] == "rrf"
        assert result["trace"]["channels"]["semantic"]["k"] == max(7, 10)
    narrow = ("--override", "semantic.k=1", "--override", "semantic.enabled=false")
    channels = run_json("search", question, *narrow, *here)["trace"]["channels"]
    assert "semantic" not in channels and "lexical" in channels
    for option, value, message in (
        ("--profile", "fast", "Unknown profile 'fast'. [UNKNOWN_PROFILE]"),
        ("--profiles", "fusion=fast", "Unknown fusion profile 'fast'. [UNKNOWN_PROFILE]"),
        ("--profiles", "fuse=rrf", "profiles.fuse"),
        ("--override", "semantic.k=0", "Invalid override semantic.k: Input should be greater"),
        ("--override", "semantic.kk=5", "Invalid override semantic.kk: Extra inputs"),
        ("--override", "semantic=5", "--override semantic=5 names no section. [BAD_SETTING]"),
        ("--override", "redaction.kinds=[]", "redaction cannot be set by a request"),
        ("--override", "budget.calls=99", "budget.calls cannot be raised by a request"),
        ("--override", "semantic.k", "--override semantic.k has no value. [BAD_SETTING]"),
    ):
        refused = run_anabranch("query", question, option, value, *here)
        assert (refused.returncode, refused.stdout) == (2, ""), refused.stderr
        assert message in refused.stderr and "/v1/" not in refused.stderr


def test_up_uses_external_database_and_logs_to_stderr(
    folder: Path, tmp_path: Path, database: str
) -> None:
    note = tmp_path / "lock.md"
    note.write_text(NOTE)
    elsewhere = {
        "ANABRANCH_DATABASE__URL": database,
        "ANABRANCH_INGEST__SOURCES": '{"*": ["default"]}',
        "ANABRANCH_LOG__MASTER_KEY": base64.b64encode(bytes(32)).decode(),
    }
    with run_up(folder, **elsewhere) as (first, server):
        assert (server["mode"], server["database_url"]) == ("external", None)
        assert (
            run_json("ingest", str(note), "--wait", "--data", str(folder))["counts"]["searchable"]
            == 1
        )
        assert first.stop() == 130
        assert [line.split()[0] for line in first.stdout_file.read_text().splitlines()] == [
            "API",
            "UI",
            "data",
            "Postgres",
            "log",
            "stages",
            "metrics",
            "profile",
        ]
        assert any(line.startswith("{") for line in first.stderr_file.read_text().splitlines())
    assert not (folder / POSTGRES_FOLDER).exists(), "no Postgres of its own"
    found = run_json(
        "search", "keeper of the lock", "--data", str(tmp_path / "another"), **elsewhere
    )
    assert "five past six" in found["results"][0]["snippet"]


@pytest.mark.parametrize("command", ["up", "worker"])
@pytest.mark.parametrize(
    "outside", ["kafka.bootstrap_servers=127.0.0.1:1", "database.url=postgresql://127.0.0.1:1/x"]
)
def test_external_mode_requires_declared_sources(
    command: str, outside: str, tmp_path: Path
) -> None:
    done = run_anabranch(command, "--set", outside, "--data", str(tmp_path / "data"))
    assert (done.returncode, "[SOURCES_REQUIRED]" in done.stderr) == (2, True)
    assert "ANABRANCH_INGEST__SOURCES='{" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--stages", "embedd"),
        ("worker", "--stages", "embedd"),
        ("up", "--port", "TAKEN"),
        ("api", "--port", "TAKEN"),
        ("worker", "--metrics-port", "TAKEN"),
    ],
)
def test_unknown_stage_or_used_port_fails_before_start(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run_anabranch(
            *(argument.replace("TAKEN", port) for argument in arguments),
            "--data",
            str(tmp_path / "data"),
        )
    assert done.returncode == 2
    assert f"[{'UNKNOWN_STAGE' if 'embedd' in arguments else 'PORT_IN_USE'}]" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("documents", "list"),
        ("documents", "delete", "00000000-0000-8000-8000-000000000000", "--yes"),
        ("query", "anything"),
        ("search", "anything"),
        ("topics", "list"),
        ("topics", "lag"),
        ("db", "status"),
        ("db", "checksum"),
        ("db", "migrate", "--dry-run"),
    ],
)
def test_read_only_command_creates_no_data_folder(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = run_anabranch(*arguments, "--data", str(tmp_path / "typo"))
    assert done.returncode == 3
    assert str(tmp_path / "typo") in done.stderr
    assert "`anabranch up`" in done.stderr
    assert not (tmp_path / "typo").exists()


def test_db_migrate_creates_data_folder(folder: Path) -> None:
    assert run_json("db", "migrate", "--data", str(folder))["applied"]
    assert run_json("db", "migrate", "--dry-run", "--data", str(folder))["pending"] == []
    assert run_json("db", "checksum", "--data", str(folder))["tables"]["documents"]["rows"] == 0


LOCK_NOTE = "# Lock\n\nThe keeper of the lock at Ardmore raises the sluice at five past six.\n"


def test_amend_command_and_integrity_check_exit_code(folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "lock.md"
    note.write_text(LOCK_NOTE)
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
        other = tmp_path / "weir.md"
        other.write_text(LOCK_NOTE.replace("lock", "weir"))
        project = ("--metadata", "project_id=p1", "--metadata", "user_id=7")
        run_json("ingest", str(other), *project, "--wait", *here)
        question = ("search", "When is the sluice raised?")
        [found] = run_json(*question, *project, *here)["results"]
        assert Path(found["source_uri"]).name == "weir.md"
        run_json(*question, "--metadata", "user_id=8", *here, expected=4)
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


def list_items(*arguments: str) -> list[dict[str, Any]]:
    return list(run_json(*arguments)["items"])


def test_redrive_discard_and_replay_command_exit_codes(folder: Path, tmp_path: Path) -> None:
    note, broken = tmp_path / "lock.md", tmp_path / "broken.pdf"
    note.write_text(LOCK_NOTE)
    broken.write_bytes(b"%PDF-1.4 but no more")
    with run_up(folder):
        here = ("--data", str(folder))
        assert (
            run_json("ingest", str(note), str(broken), "--wait", *here, expected=5)["counts"][
                "failed"
            ]
            == 1
        )
        [cause] = list_items("dlq", "list", "--by-cause", *here)
        [letter] = list_items("dlq", "list", *here)
        assert (cause["events"], cause["code"]) == (1, letter["code"]) and letter[
            "stage"
        ] == "receive"
        assert run_json("dlq", "show", letter["event_id"], *here)["remedy"]
        for listed in (("dlq", "list"), ("documents", "list", "--failed")):
            assert "broken.pdf" in run_anabranch(*listed, *here).stdout
        assert run_json("dlq", "redrive", "--all", "--dry-run", *here) == {
            "events": 1,
            "stages": {"receive": 1},
            "skipped": 0,
            "replays": [],
            "schema_version": 1,
        }
        [again] = run_json("dlq", "redrive", "--all", *here, expected=5)["replays"]
        assert (again["state"], again["dead_lettered"]) == ("done", 1)
        assert run_anabranch("dlq", "redrive", *here).returncode == 2, "it was not said which"
        assert run_anabranch("dlq", "discard", letter["event_id"], *here).returncode == 2, (
            "it was not said why"
        )
        assert (
            run_json("dlq", "discard", letter["event_id"], "--reason", "not ours", *here)["events"]
            == 1
        )
        assert (
            run_json("replay", "start", "--stage", "chunk", "--dry-run", *here)["events_chosen"]
            == 1
        )
        [done] = run_json("replay", "start", "--stage", "chunk", *here)["replays"]
        assert (done["read"], done["replayed"], done["remaining"]) == (1, 1, 0)
        assert [one["kind"] for one in list_items("replay", "list", *here)] == ["replay", "redrive"]
        unknown = run_anabranch("replay", "show", "00000000-0000-8000-8000-000000000000", *here)
        assert unknown.returncode == 3 and "`anabranch" in unknown.stderr
        assert (
            run_anabranch(
                "replay", "start", "--stage", "chunk", "--offsets", "0:1to9", *here
            ).returncode
            == 2
        )
        assert run_anabranch("dlq", "show", letter["event_id"], *here).returncode == 3, (
            "it is closed"
        )
