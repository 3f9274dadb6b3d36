"""Thresholds learned by split conformal prediction.

Cloze questions from passages, and the report of an exam.

Judgements as files for training and evaluation.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid5

import numpy as np
import pytest

from evaluation.calibration import (
    calibrate,
    find_lower_quantile,
    find_safe_quantile,
    learn_thresholds,
    measure_held_out,
)
from evaluation.comparison import read_golden
from evaluation.exam import build_exam, compute_share, summarize_exam
from evaluation.judgements import build_judgement_export, write_judgement_export
from schemas.exams import CalibrationRequest, Exam, ExamItem, RankedQuestion
from schemas.judgements import GradedPassage
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


def make_judgement(name: str | None, quote: str, grade: int) -> GradedPassage:
    return GradedPassage(
        document_id=UUID(int=7),
        external_id=name,
        revision=2,
        char_start=3,
        char_end=3 + len(quote),
        quote=quote,
        grade=grade,
    )


def test_files_hold_each_judgement_and_can_be_read_as_golden_questions(tmp_path: Path) -> None:
    judgements = [
        ("Where?", make_judgement("a\tb", "in the hall", 1)),
        ("Where?", make_judgement("a\tb", "behind the hall", 3)),
        ("Where?", make_judgement(None, "nowhere", 0)),
        ("When?", make_judgement("c", "at nine", 2)),
    ]
    export = build_judgement_export(judgements, [{"query": "Why?", "refused": True}])
    counts = write_judgement_export(tmp_path / "new", export)
    assert counts == {
        "golden.jsonl": 2,
        "hard_negatives.jsonl": 1,
        "difficult.jsonl": 1,
        "queries.jsonl": 2,
        "qrels.tsv": 3,
    }
    golden = {question.query: question for question in read_golden(tmp_path / "new/golden.jsonl")}
    assert [judged.grade for judged in golden["Where?"].judgements] == [1, 3, 0]
    [negative] = (tmp_path / "new/hard_negatives.jsonl").read_text().splitlines()
    assert json.loads(negative)["negatives"] == ["nowhere"]
    header, *rows = (tmp_path / "new/qrels.tsv").read_text().splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    ids = {
        json.loads(line)["text"]: json.loads(line)["id"]
        for line in (tmp_path / "new/queries.jsonl").read_text().splitlines()
    }
    assert sorted(rows) == sorted(
        [f"{ids['When?']}\tc\t2", f"{ids['Where?']}\ta b\t3", f"{ids['Where?']}\t{UUID(int=7)}\t0"]
    )


N_DOCUMENTS = 120


def make_items(n_documents: int = N_DOCUMENTS, *, hidden: bool = False) -> list[ExamItem]:
    """Make items whose passage is among ten for .97, with scores that resemble each other within a
    document.
    """
    random = np.random.default_rng(5)
    items = []
    for document in range(n_documents):
        ease = random.normal(0.0, 0.05)
        for _ in range(int(random.integers(1, 4))):
            shares = np.sort(np.clip(random.beta(1.5, 3.0, 10), 0, 1))[::-1]
            shares[0] = 1.0
            rank = 1 + int(min(9, random.geometric(0.7) - 1))
            shares[rank - 1] = np.clip(max(shares[rank - 1], 0.8 + ease), 0, 1)
            shares = np.sort(shares)[::-1]
            items.append(
                ExamItem(
                    kind="date",
                    document_id=UUID(int=document),
                    char_start=0,
                    char_end=1,
                    hidden=hidden,
                    rank=None if random.random() < 0.03 else rank,
                    refused=False,
                    probability=float(np.clip(random.beta(4, 2) + ease, 0, 1)),
                    shares=[float(share) for share in shares],
                )
            )
    return items


def test_thresholds_hold_on_documents_not_learned_from() -> None:
    measured = measure_held_out(make_items(), 0.9, 0.05)
    assert measured is not None
    assert 0.89 <= measured["coverage"] <= 0.93
    assert measured["passages"] <= 5.0  # half of the first ten
    assert 0.03 <= measured["false_refusals"] <= 0.06
    assert measure_held_out(make_items(1), 0.9, 0.05) is None


def test_quantile_of_too_few_scores_keeps_everything() -> None:
    assert find_lower_quantile([0.5] * 8, 0.1) == 0.0
    assert find_lower_quantile([0.1, *[0.9] * 8], 0.1) == 0.1


def test_passages_that_are_not_found_count_as_missed() -> None:
    found = RankedQuestion(rank=1, refused=False, shares=[1.0])
    missed = RankedQuestion(rank=None, refused=False, shares=[1.0])
    assert learn_thresholds([found] * 95 + [missed] * 5, 0.9, 0.05).trim == 1.0
    # More are missed than may be: nothing is trimmed.
    assert learn_thresholds([found] * 80 + [missed] * 20, 0.9, 0.05).trim == 0.0


def make_exam(items: list[ExamItem]) -> Exam:
    return Exam(
        exam_id=UUID(int=9),
        tenant="default",
        generation="g2",
        profile="default",
        seed=0,
        scores="abc",
        completed_at=datetime(2026, 3, 1, tzinfo=UTC),
        items=items,
    )


def with_probabilities(items: list[ExamItem], *probabilities: float) -> list[ExamItem]:
    """Return the items with these probabilities in turn."""
    return [
        item.model_copy(update={"probability": probabilities[number % len(probabilities)]})
        for number, item in enumerate(items)
    ]


def test_exam_thresholds_are_limited_and_judgements_win() -> None:
    items, request = make_items(), CalibrationRequest()
    hidden = with_probabilities(make_items(hidden=True), 0.2, 0.3)
    result = calibrate(make_exam(items + hidden), [], request)
    by_exam = result.calibration
    assert (by_exam.basis, by_exam.scores, by_exam.generation) == ("exam", "abc", "g2")
    assert by_exam.min_confidence == request.max_confidence and result.reason is None
    assert by_exam.trim is not None and by_exam.trim <= request.max_trim
    by_people = calibrate(make_exam(items), items, request).calibration
    assert (by_people.basis, by_people.questions) == ("judgements", len(items))
    assert by_people.min_confidence is not None
    assert by_people.min_confidence > request.max_confidence


def test_few_questions_do_not_refuse_more_than_the_default() -> None:
    items = make_items(25)
    assert 30 <= len(items) < 59
    result = calibrate(make_exam(items), [], CalibrationRequest())
    assert (result.calibration.basis, result.reason) == ("exam", "interval")
    assert result.calibration.min_confidence is None
    assert result.calibration.trim is not None and result.calibration.trim <= 0.8


def test_stricter_refusal_without_gain_is_not_learned() -> None:
    items = make_items()
    # The questions without an answer score as high as the others.
    result = calibrate(make_exam(items + make_items(hidden=True)), [], CalibrationRequest())
    assert (result.calibration.min_confidence, result.reason) == (None, "no_gain")


def test_lower_threshold_than_the_default_is_learned() -> None:
    items = with_probabilities(make_items(25), *[0.02] * 2, *[0.6] * 18)
    result = calibrate(make_exam(items), [], CalibrationRequest())
    assert (result.calibration.min_confidence, result.reason) == (0.02, None)


def test_safe_quantile_needs_fifty_nine_scores_for_one_in_twenty() -> None:
    assert find_safe_quantile([0.5] * 58, 0.05) == 0.0
    assert find_safe_quantile([0.3, *[0.5] * 58], 0.05) == 0.3
    assert find_safe_quantile([n / 20_000 for n in range(20_000)], 0.05) == pytest.approx(
        0.05, abs=0.003
    )
    assert find_safe_quantile([0.5] * 100, 0.0) == 0.0


@pytest.mark.parametrize("hidden", [True, False])
def test_too_few_answerable_questions_are_labelled_uncalibrated(hidden: bool) -> None:
    items = make_items(hidden=True) if hidden else make_items(5)
    result = calibrate(make_exam(items), [], CalibrationRequest())
    assert (result.calibration.basis, result.reason) == ("uncalibrated", "too_few_questions")
    assert result.calibration.min_confidence is None and result.calibration.trim is None
