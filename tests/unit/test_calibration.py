"""Thresholds learned by split conformal prediction."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest

from evaluation.calibration import (
    calibrate,
    find_lower_quantile,
    find_safe_quantile,
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


def with_probabilities(items: list[ExamItem], *probabilities: float) -> list[ExamItem]:
    """Return the items with these probabilities in turn."""
    return [
        item.model_copy(update={"probability": probabilities[number % len(probabilities)]})
        for number, item in enumerate(items)
    ]


def test_exam_thresholds_are_limited_and_judgements_win() -> None:
    items, request = make_items(), CalibrationRequest()
    hidden = with_probabilities(make_items(hidden=True), 0.07, 0.3)
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
