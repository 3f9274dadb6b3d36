"""`anabranch eval candidates`, `eval drafts` and `eval import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main
from tests.fakes.failing_server import ServeAnswers, serve_answers

__all__ = ["serve_answers"]

RUN_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
CHUNK_ID = "0b6c2f6e-6f0c-4c51-9a0e-4f9d1b7a7c11"
RECEIPT = {"status": "accepted", "feedback_id": RUN_ID, "judgements": 1}
DRAFT: dict[str, Any] = {
    "query": "When: the tower?",
    "grades": {CHUNK_ID: 3},
    "document": "tower",
    "passage": "The tower was built in 1950.",
}


def test_list_shows_question_with_cited_passages(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    passage = {"n": 1, "chunk_id": CHUNK_ID, "title": None, "quote": "in shallow water"}
    item = {
        "query": "Where?",
        "run_id": RUN_ID,
        "probability": 0.4,
        "useful": True,
        "passages": [passage],
    }
    serve_answers({"/v1/judgements/candidates": {"items": [item], "next": None}}, 1)
    assert main(["eval", "candidates", "list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{RUN_ID}  Where?  (probability 0.40, useful)"
    assert CHUNK_ID in second and "in shallow water" in second


@pytest.mark.parametrize(
    ("options", "grades"), [([], {CHUNK_ID: 3}), (["--chunk", f"{RUN_ID}=2"], {RUN_ID: 2})]
)
def test_accept_grades_lead_citation_or_named_chunks(
    serve_answers: ServeAnswers, options: list[str], grades: dict[str, int]
) -> None:
    run = {"response": {"citations": [{"chunk_id": CHUNK_ID}, {"chunk_id": RUN_ID}]}}
    requests = serve_answers({f"/v1/runs/{RUN_ID}": run, "/v1/feedback": RECEIPT}, 2)
    assert main(["eval", "candidates", "accept", RUN_ID, *options]) == 0
    assert json.loads(requests[-1][1]) == {"run_id": RUN_ID, "grades": grades}


def test_run_without_citation_is_not_accepted(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = serve_answers({f"/v1/runs/{RUN_ID}": {"response": {"citations": []}}}, 1)
    assert main(["eval", "candidates", "accept", RUN_ID]) != 0
    assert len(requests) == 1 and "--chunk" in capsys.readouterr().err


def test_reject_is_sent_as_feedback(serve_answers: ServeAnswers) -> None:
    requests = serve_answers({"/v1/feedback": RECEIPT}, 1)
    assert main(["eval", "candidates", "reject", RUN_ID]) == 0
    assert json.loads(requests[0][1]) == {"run_id": RUN_ID, "candidate_rejected": True}


def test_drafts_are_imported_without_reading_aids(
    serve_answers: ServeAnswers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "questions.jsonl"
    answers = {"/v1/judgements/drafts": {"items": [DRAFT, DRAFT]}, "/v1/feedback": RECEIPT}
    requests = serve_answers(answers, 3)
    assert main(["eval", "drafts", str(file)]) == 0
    assert len(file.read_text().splitlines()) == 2
    assert main(["eval", "import", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == 2
    assert [json.loads(body) for path, body in requests if path == "/v1/feedback"] == [
        {"query": DRAFT["query"], "grades": DRAFT["grades"]}
    ] * 2


def test_edited_drafts_are_not_overwritten(serve_answers: ServeAnswers, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("edited")
    serve_answers({"/v1/judgements/drafts": {"items": [DRAFT]}}, 1)
    assert main(["eval", "drafts", str(file)]) != 0
    assert file.read_text() == "edited"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        json.dumps({"query": "Why?"}),
        json.dumps(DRAFT | {"grades": {CHUNK_ID: 4}}),
        json.dumps(DRAFT | {"grades": {"no id": 3}}),
        json.dumps(DRAFT | {"url": "http://169.254.169.254/"}),
    ],
)
def test_invalid_line_stops_import_before_first_question(
    serve_answers: ServeAnswers, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(f"{json.dumps(DRAFT)}\n{line}\n")
    requests = serve_answers({"/v1/feedback": RECEIPT}, 2)
    assert main(["eval", "import", str(file)]) != 0
    assert requests == [] and "questions.jsonl line 2" in capsys.readouterr().err
