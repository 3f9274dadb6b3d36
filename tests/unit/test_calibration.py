"""Thresholds learned by split conformal prediction."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest

from evaluation.calibration import (
    calibrate,
    find_lower_quantile,
    learn_thresholds,
    measure_held_out,
)
from schemas.exams import CalibrationRequest, Exam, ExamItem, RankedQuestion

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


def test_exam_thresholds_are_limited_and_judgements_win() -> None:
    items, request = make_items(), CalibrationRequest()
    by_exam = calibrate(make_exam(items), [], request)
    assert (by_exam.basis, by_exam.scores, by_exam.generation) == ("exam", "abc", "g2")
    assert by_exam.min_confidence == request.max_confidence
    assert by_exam.trim is not None and by_exam.trim <= request.max_trim
    by_people = calibrate(make_exam(items), items[:40], request)
    assert (by_people.basis, by_people.questions) == ("judgements", 40)
    assert by_people.min_confidence is not None
    assert by_people.min_confidence > request.max_confidence


@pytest.mark.parametrize("hidden", [True, False])
def test_too_few_answerable_questions_are_labelled_uncalibrated(hidden: bool) -> None:
    items = make_items(hidden=True) if hidden else make_items(5)
    calibration = calibrate(make_exam(items), [], CalibrationRequest())
    assert calibration.basis == "uncalibrated"
    assert calibration.min_confidence is None and calibration.trim is None
