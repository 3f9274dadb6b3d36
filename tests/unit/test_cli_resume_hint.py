"""When the server dies during a command, the CLI prints the progress and how to resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main
from tests.fakes.failing_server import ServeAnswers, serve_answers

__all__ = ["serve_answers"]

JOB_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
RUNNING_REPLAY = {"stage": "chunk", "read": 7, "total": 20, "state": "running", "eta_s": None}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in "abcde":
        (tmp_path / f"{name}.md").write_text(name)
    return [str(tmp_path / f"{name}.md") for name in "abcde"]


@pytest.fixture
def accepting(serve_answers: ServeAnswers) -> None:
    serve_answers(
        {"/v1/ingest": {"document_id": JOB_ID, "ingestion_job_id": JOB_ID, "duplicate": False}}, 2
    )


@pytest.mark.usefixtures("accepting")
def test_accepted_documents_are_printed_when_server_dies(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", *files, "--concurrency", "1", "--quiet"]) == 7
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()] == ["path", *files[:2]]
    assert (
        "2 of 5 documents were accepted; run the same command again" in captured.err
        and "SERVER_UNREACHABLE" in captured.err
    )


@pytest.mark.usefixtures("accepting")
def test_interrupted_ingest_json_lists_state_of_each_document(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", *files, "--concurrency", "1", "--json"]) == 7
    documents = json.loads(capsys.readouterr().out)["documents"]
    assert [one["state"] for one in documents] == [
        "accepted",
        "accepted",
        "sending",
        "waiting",
        "waiting",
    ]


def test_stopped_wait_says_what_is_in_progress_and_asks_for_no_second_run(
    files: list[str], serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = {"document_id": JOB_ID, "ingestion_job_id": JOB_ID, "duplicate": False}
    serve_answers(
        {
            "/v1/ingest": accepted,
            f"/v1/ingest/status/{JOB_ID}": {"state": "running", "document_id": JOB_ID},
        },
        3,
    )
    assert main(["ingest", *files[:2], "--concurrency", "1", "--wait", "--quiet"]) == 7
    stderr = capsys.readouterr().err
    assert "run the same command again" not in stderr
    assert "2 in progress" in stderr and "anabranch documents list" in stderr


@pytest.mark.parametrize(
    ("command", "answers", "n_answers", "expected"),
    [
        (
            ["replay", "start", "--stage", "chunk"],
            {"/v1/replays": {"replay_id": JOB_ID}, f"/v1/replays/{JOB_ID}": RUNNING_REPLAY},
            2,
            f"anabranch replay show {JOB_ID}",
        ),
        (
            ["dlq", "redrive", "--all"],
            {"/v1/dead-letters/redrive": {"replays": [JOB_ID]}},
            1,
            f"anabranch replay show {JOB_ID}",
        ),
        (
            ["reindex", "--wait"],
            {"/v1/generations": {"generation": "g2"}},
            1,
            "anabranch generations list",
        ),
        (
            ["erase", "document", JOB_ID, "--yes"],
            {"/v1/erasures": {"receipt_id": JOB_ID}},
            1,
            "anabranch erase receipts",
        ),
        (
            ["documents", "amend", JOB_ID, "--title", "x"],
            {f"/v1/documents/{JOB_ID}": {"ingestion_job_id": JOB_ID, "document_id": JOB_ID}},
            1,
            f"anabranch documents show {JOB_ID}",
        ),
        (
            ["watch", "--from", "begin"],
            {"/v1/events": {"items": [], "next": "7.1", "end": False, "missed": 0}},
            1,
            "--from 7.1",
        ),
    ],
    ids=["replay", "redrive", "reindex", "erase", "amend", "watch"],
)
def test_interrupted_wait_prints_resume_command(
    serve_answers: ServeAnswers,
    command: list[str],
    answers: dict[str, Any],
    n_answers: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve_answers(answers, n_answers)
    assert main(command) == 7
    stderr = capsys.readouterr().err
    assert expected in stderr and "SERVER_UNREACHABLE" in stderr
