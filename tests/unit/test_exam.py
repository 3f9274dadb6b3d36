"""Cloze questions from passages, and the report of an exam."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid5

import pytest

from evaluation.exam import build_exam, compute_share, summarize_exam
from schemas.exams import Exam, ExamItem
from sql.catalog.exams import DocumentLabel, ExamPassage

SPACE = UUID(int=7)
TABLE = "| part | weight |\n| --- | --- |\n| HX-{n} bolt | {n} kg |\n| HX-{n} nut | {n} g |"
TEXTS = (
    'In contract {n}, "Licensed Area {n}" means the land south of road number {n}.',
    "The tower number {n} of the northern harbor was finished on 12 March 19{n}.",
    "The rent of the storage hall number {n} comes to EUR {n},250.00 for each quarter.",
    TABLE,
)


def make_passage(number: int, text: str) -> ExamPassage:
    document_id = uuid5(SPACE, str(number // 2))
    return ExamPassage(
        id=uuid5(SPACE, text),
        parent_id=uuid5(document_id, text),
        document_id=document_id,
        name=f"document {number // 2}",
        collection=None,
        kind="paragraph",
        language="en",
        text=text,
        prefix="",
        char_start=0,
        char_end=len(text),
        chunks=2,
    )


def make_passages(n_passages: int) -> list[ExamPassage]:
    return [
        make_passage(number, TEXTS[number % len(TEXTS)].format(n=number + 10))
        for number in range(n_passages)
    ]


def test_exam_has_all_kinds_and_as_many_hidden_as_answerable_questions() -> None:
    questions = build_exam(make_passages(40), 20, seed=1)
    assert len(questions) == 20
    assert Counter(question.hidden for question in questions) == {True: 10, False: 10}
    kinds = Counter(question.kind for question in questions)
    assert set(kinds) == {"definition", "date", "amount", "table_cell"} and min(kinds.values()) >= 4


def test_exam_depends_on_seed_and_passages_but_not_on_their_order() -> None:
    passages = make_passages(40)
    first = build_exam(passages, 20, seed=1)
    assert build_exam(list(reversed(passages)), 20, seed=1) == first
    assert build_exam(passages, 20, seed=2) != first


def test_question_lacks_what_it_asks_for() -> None:
    for question in build_exam(make_passages(40), 40, seed=3):
        match question.kind:
            case "date":
                assert "March" not in question.text and question.text.startswith("When: The tower")
            case "amount":
                assert "EUR" not in question.text and "storage hall" in question.text
            case "table_cell":
                assert question.text.startswith("What is the weight of HX-")
            case "definition":
                assert question.text.startswith("What does “Licensed Area")
                assert "land" not in question.text


def test_question_that_two_documents_answer_is_not_asked() -> None:
    passages = make_passages(4)
    other_revision = replace(passages[1], id=UUID(int=1), document_id=UUID(int=2))
    texts = {question.text for question in build_exam([*passages, other_revision], 40, seed=0)}
    assert texts and not any("tower" in text for text in texts)


def test_text_without_values_gives_no_exam() -> None:
    assert build_exam([make_passage(0, "Herons wait for fish.")], 10, seed=0) == []


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Intervals of Wilson (1927), as R's prop.test(correct = FALSE) gives them.
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_share_has_wilson_interval(successes: int, n: int, low: float, high: float) -> None:
    share = compute_share(successes, n)
    assert (share["low"], share["high"]) == (low, high) and share["n"] == n


def test_report_names_weakest_document_and_survives_its_erasure() -> None:
    weak, strong = UUID(int=1), UUID(int=2)
    shape = {"kind": "date", "char_start": 0, "char_end": 9}
    items = [
        ExamItem(document_id=strong, rank=1, refused=False, hidden=False, **shape),
        ExamItem(document_id=weak, rank=None, refused=False, hidden=True, **shape),
        ExamItem(document_id=weak, rank=4, refused=False, hidden=False, **shape),
    ]
    exam = Exam(
        exam_id=UUID(int=9),
        tenant="default",
        generation="g1",
        profile="default",
        seed=0,
        scores="s",
        completed_at=datetime(2026, 3, 1, tzinfo=UTC),
        items=items,
    )
    labels = {weak: DocumentLabel("weak.md", "hall"), strong: DocumentLabel("strong.md", None)}
    report = summarize_exam(exam, labels)
    assert report["overall"]["passage_first"]["value"] == 0.5
    assert report["overall"]["correctly_refused"]["value"] == 0.0
    assert set(report["collections"]) == {"", "hall"}
    [weakest] = report["weakest_documents"]
    assert (weakest["name"], weakest["wrong"], weakest["questions"]) == ("weak.md", 2, 2)
    assert summarize_exam(exam, {})["weakest_documents"][0]["name"] is None
