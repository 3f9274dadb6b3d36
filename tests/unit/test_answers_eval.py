from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from evaluation.answers_eval import (
    AnswerQuestion,
    contains,
    evaluate_answers,
    extract_lead,
    normalize_text,
    read_answers_set,
    score_answer,
)
from schemas.errors import InvalidRequest
from schemas.judge_verdicts import CheckName, JudgeCheck, JudgeVerdict
from schemas.questions import QueryResponse
from tests.unit.query_responses import respond

RENT = AnswerQuestion(
    id="rent",
    question="How much is the rent?",
    kind="exact",
    language="en",
    answerable=True,
    documents=["rent.md"],
    gold=["2,450 euros"],
    must_not=["540 euros"],
)
ABSENT = RENT.model_copy(update={"id": "absent", "answerable": False, "gold": []})


@pytest.mark.parametrize(
    ("text", "wanted", "is_held"),
    [
        ("The rent is **2 450 euros**.", "2,450 euros", True),
        ("Preço: 27 480 €", "27480€", True),
        ("It takes 12.50 kg", "12.5 kg", True),
        ("HX-11S", "HX-11", False),
        ("1,540 euros", "540 euros", False),
        ("Weight | 5.6 kg", "weight · 5.6 kg", True),
        ("Crème brûlée", "creme brulee", True),
        ("停车费是五元。", "五元", True),
        ("停车费是五元。", "六元", False),
    ],
)
def test_text_is_compared_by_whole_words_and_numbers(text: str, wanted: str, is_held: bool) -> None:
    assert contains(normalize_text(text), wanted) is is_held


def test_lead_ends_at_citation_sentence_or_line() -> None:
    assert extract_lead("Dr. Ames pays. Nora keeps it. [1]") == "Dr. Ames pays."
    assert extract_lead("Rent: 540 euros [1] Fee: 3 [2]") == "Rent: 540 euros"
    assert extract_lead("First\nsecond") == "First"


@pytest.mark.parametrize(
    ("answer", "quote", "outcome", "is_marked_right"),
    [
        ("The rent is **2,450 euros**. [1]", "The rent is 2,450 euros.", "right", True),
        ("It is paid monthly. [1]", "It is paid monthly: 2,450 euros.", "right", None),
        ("The charge is **540 euros**. [1]", "2,450 euros", "wrong", False),
        ("Nobody knows. [1]", "Nobody knows.", "wrong", None),
        (None, "", "falsely_refused", None),
    ],
)
def test_answer_is_scored(
    answer: str | None, quote: str, outcome: str, is_marked_right: bool | None
) -> None:
    scored = score_answer(RENT, respond(answer, quote))
    assert (scored.outcome, scored.is_marked_right) == (outcome, is_marked_right)


def test_half_needs_some_group_and_contrary_word_is_wrong() -> None:
    both = RENT.model_copy(update={"all_of": [["2,450"], ["540"]], "must_not": []})
    assert score_answer(both, respond("It is 2,450 euros. [1]")).outcome == "half"
    expected = RENT.model_copy(update={"expected": "yes"})
    assert score_answer(expected, respond("No, 2,450 euros. [1]")).outcome == "wrong"


async def test_report_has_measures_by_kind_and_confidence() -> None:
    answers = {
        RENT.question: respond("The rent is **2,450 euros**. [1]", "The rent is 2,450 euros."),
    }
    absent = ABSENT.model_copy(update={"question": "Who?", "kind": "absent"})

    async def ask(question: str) -> QueryResponse:
        return answers.get(question) or respond("Nora. [1]", "Nora.", "low")

    report, responses = await evaluate_answers([RENT, absent], ask)
    assert report["overall"]["right"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert report["overall"]["correctly_refused"]["value"] == 0.0
    assert report["overall"]["confidence_auc_all"]["value"] == 1.0
    assert report["kinds"]["exact"]["lead_quote_has_gold"]["value"] == 1.0
    assert report["right_by_confidence"] == {
        "low": {"answers": 1, "right": 0.0},
        "high": {"answers": 1, "right": 1.0},
    }
    assert len(responses) == 2 and report["latency_ms"] == {"p50": 12.0, "p95": 12.0}


@pytest.mark.parametrize(
    ("model", "results", "faithful"),
    [
        ("chat", {"groundedness": "pass", "hallucination": "pass"}, True),
        ("chat", {"groundedness": "not_checked", "contradiction": "fail"}, False),
        ("chat", {"groundedness": "pass", "relevance": "fail"}, True),
        ("chat", {"groundedness": "not_checked"}, None),
        ("extractive", {"groundedness": "pass"}, None),
    ],
)
async def test_written_answers_are_faithful_if_no_check_against_citations_failed(
    model: str, results: dict[CheckName, Literal["pass", "fail", "not_checked"]], faithful: bool
) -> None:
    checks = [
        JudgeCheck(name=name, kind="deterministic", result=result)
        for name, result in results.items()
    ]
    verdict = JudgeVerdict(decision="PASS", checks=checks)

    async def ask(question: str) -> QueryResponse:
        # The first is blocked by the judge: it was written nevertheless.
        response = respond(None if question == RENT.question else "Nora. [1]", "Nora.")
        trace = response.trace.model_copy(update={"models": {"answer": model}})
        return response.model_copy(update={"judge": verdict, "trace": trace})

    absent = ABSENT.model_copy(update={"question": "Who?"})
    report, _ = await evaluate_answers([RENT, absent], ask)
    measured = report["overall"].get("faithfulness")
    assert (measured and measured["value"]) == (None if faithful is None else float(faithful))
    assert report["overall"]["refusal_precision"]["value"] == 0.0


def test_set_without_gold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text('{"file": "files/a.md"}\n')
    line = RENT.model_copy(update={"gold": []}).model_dump_json()
    (tmp_path / "questions.jsonl").write_text(line + "\n")
    with pytest.raises(InvalidRequest, match="without gold: rent"):
        read_answers_set(tmp_path)
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": 1}))
    with pytest.raises(InvalidRequest, match="not a set of questions"):
        read_answers_set(tmp_path)
