from __future__ import annotations

import base64
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from anabranch.process.database import FOLDER
from tests.journey.served import anabranch, up

NOTE = "# Lock\n\nThe keeper of the lock at Ardmore raises the sluice at five past six.\n"


def told(*arguments: str, expected: int = 0, **settings: str) -> dict[str, Any]:
    done = anabranch(*arguments, "--json", **settings)
    assert done.returncode == expected, done.stderr
    return dict(json.loads(done.stdout))


def test_what_was_sent_twice_counts_once_as_a_duplicate_and_says_that_it_changed_nothing(folder: Path, tmp_path: Path) -> None:
    note, empty = tmp_path / "lock.md", tmp_path / "empty.md"
    note.write_text(NOTE)
    empty.write_text("")
    with up(folder):
        here = ("--data", str(folder))
        first = told("ingest", str(note), "--wait", *here)
        assert first["counts"] == {"searchable": 1, "failed": 0, "duplicate": 0}
        document = first["documents"][0]["document_id"]

        again = told("ingest", str(note), "--wait", *here)
        assert again["counts"] == {"searchable": 0, "failed": 0, "duplicate": 1}
        shown = anabranch("documents", "show", document, *here).stdout
        assert "1 (revision 2 changed nothing)" in shown
        assert "UNCHANGED" in shown

        forced = anabranch("ingest", str(note), "--wait", "--force", *here)
        assert forced.returncode == 0
        assert "duplicate" not in forced.stderr
        assert "1 searchable" in forced.stderr

        failed = anabranch("ingest", str(empty), str(note), "--quiet", *here)
        assert failed.returncode == 5
        assert "[EMPTY_DOCUMENT]\n  → Send the content" in failed.stderr

        asked = anabranch("query", "When does the keeper raise the sluice?", "--stream", *here)
        assert asked.returncode == 0
        assert "five past six" in asked.stdout
        assert " ms\n" in asked.stderr
        lines = [json.loads(line) for line in anabranch("query", "When does the keeper raise the sluice?", "--stream", "--json", *here).stdout.splitlines()]
        assert (lines[0]["event"], lines[-1]["event"]) == ("started", "answer")
        assert "five past six" in lines[-1]["answer"]

        missing = anabranch("documents", "show", "00000000-0000-8000-8000-000000000000", *here)
        assert missing.returncode == 3
        assert "`anabranch documents list`" in missing.stderr
        assert "/v1/" not in missing.stderr

        unasked = anabranch("documents", "delete", document, *here)
        assert (unasked.returncode, unasked.stdout) == (2, "")
        assert "--yes" in unasked.stderr
        assert anabranch("documents", "delete", document, *here, stdin="n\n").returncode == 1
        assert anabranch("documents", "delete", document, *here, stdin="y\n").returncode == 0


def test_up_works_on_a_database_that_is_elsewhere_and_keeps_talk_off_stdout(folder: Path, tmp_path: Path, database: str) -> None:
    note = tmp_path / "lock.md"
    note.write_text(NOTE)
    elsewhere = {
        "ANABRANCH_DATABASE__URL": database,
        "ANABRANCH_INGEST__SOURCES": '{"*": ["default"]}',
        "ANABRANCH_LOG__MASTER_KEY": base64.b64encode(bytes(32)).decode(),
    }
    with up(folder, **elsewhere) as (first, server):
        assert (server["mode"], server["database_url"]) == ("external", None)
        assert told("ingest", str(note), "--wait", "--data", str(folder))["counts"]["searchable"] == 1
        assert first.stop() == 0
        assert [line.split()[0] for line in first.out.read_text().splitlines()] == ["API", "UI", "data", "Postgres", "log", "stages", "metrics", "profile"]
        assert any(line.startswith("{") for line in first.err.read_text().splitlines())
    assert not (folder / FOLDER).exists(), "no Postgres of its own"
    found = told("search", "keeper of the lock", "--data", str(tmp_path / "another"), **elsewhere)
    assert "five past six" in found["results"][0]["snippet"]


@pytest.mark.parametrize("command", ["up", "worker"])
@pytest.mark.parametrize("outside", ["kafka.bootstrap_servers=127.0.0.1:1", "database.url=postgresql://127.0.0.1:1/x"])
def test_start_without_named_sources_is_refused_outside_the_embedded_mode(command: str, outside: str, tmp_path: Path) -> None:
    done = anabranch(command, "--set", outside, "--data", str(tmp_path / "data"))
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
def test_a_wrong_stage_or_a_taken_port_is_told_before_anything_is_made(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = anabranch(*(argument.replace("TAKEN", port) for argument in arguments), "--data", str(tmp_path / "data"))
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
def test_a_command_that_only_reads_makes_no_data_folder(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = anabranch(*arguments, "--data", str(tmp_path / "typo"))
    assert done.returncode == 3
    assert str(tmp_path / "typo") in done.stderr
    assert "`anabranch up`" in done.stderr
    assert not (tmp_path / "typo").exists()


def test_db_migrate_begins_a_data_folder(folder: Path) -> None:
    assert told("db", "migrate", "--data", str(folder))["applied"]
    assert told("db", "migrate", "--dry-run", "--data", str(folder))["pending"] == []
    assert told("db", "checksum", "--data", str(folder))["tables"]["documents"]["rows"] == 0
