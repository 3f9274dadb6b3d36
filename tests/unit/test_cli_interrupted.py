"""A server that goes away in the middle of a command: what was done is told, and how to go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main
from tests.fakes.mortal_server import Served, served

__all__ = ["served"]

ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
RUNNING = {"stage": "chunk", "read": 7, "total": 20, "state": "running", "eta_s": None}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in "abcde":
        (tmp_path / f"{name}.md").write_text(name)
    return [str(tmp_path / f"{name}.md") for name in "abcde"]


@pytest.fixture
def accepting(served: Served) -> None:
    served({"/v1/ingest": {"document_id": ID, "ingestion_job_id": ID, "duplicate": False}}, 2)


@pytest.mark.usefixtures("accepting")
def test_what_was_accepted_before_the_server_died_is_printed_and_how_to_go_on(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", *files, "--concurrency", "1", "--quiet"]) == 7
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == ["path", *files[:2]]
    assert "2 of 5 documents were accepted; run the same command again" in told.err and "SERVER_UNREACHABLE" in told.err


@pytest.mark.usefixtures("accepting")
def test_as_json_every_document_has_its_state(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", *files, "--concurrency", "1", "--json"]) == 7
    documents = json.loads(capsys.readouterr().out)["documents"]
    assert [one["state"] for one in documents] == ["accepted", "accepted", "sending", "waiting", "waiting"]


@pytest.mark.parametrize(
    ("command", "answers", "lives", "told"),
    [
        (["replay", "start", "--stage", "chunk"], {"/v1/replays": {"replay_id": ID}, f"/v1/replays/{ID}": RUNNING}, 2, f"anabranch replay show {ID}"),
        (["dlq", "redrive", "--all"], {"/v1/dead-letters/redrive": {"replays": [ID]}}, 1, f"anabranch replay show {ID}"),
        (["reindex", "--wait"], {"/v1/generations": {"generation": "g2"}}, 1, "anabranch generations list"),
        (["erase", "document", ID, "--yes"], {"/v1/erasures": {"receipt_id": ID}}, 1, "anabranch erase receipts"),
        (["documents", "amend", ID, "--title", "x"], {f"/v1/documents/{ID}": {"ingestion_job_id": ID, "document_id": ID}}, 1, f"anabranch documents show {ID}"),
        (["watch", "--from", "begin"], {"/v1/events": {"items": [], "next": "7.1", "end": False, "missed": 0}}, 1, "--from 7.1"),
    ],
    ids=["replay", "redrive", "reindex", "erase", "amend", "watch"],
)
def test_whoever_waited_is_told_how_to_come_back_to_it(
    served: Served, command: list[str], answers: dict[str, Any], lives: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    served(answers, lives)
    assert main(command) == 7
    said = capsys.readouterr().err
    assert told in said and "SERVER_UNREACHABLE" in said
