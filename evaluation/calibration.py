"""Learn the thresholds of refusal and trimming by split conformal prediction.

Of n exchangeable scores, at least 1 - a of new ones are not below the score at place
floor(a (n + 1)), and at most 1 - a + 1 / (n + 1) (Vovk et al. 2005; Lei et al. 2018). Questions
about one document resemble each other, so the guarantee holds for documents like those examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from schemas.exams import (
    Calibration,
    CalibrationBasis,
    CalibrationRequest,
    Exam,
    RankedQuestion,
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    min_confidence: float | None
    trim: float | None


def find_lower_quantile(scores: Sequence[float], miss_rate: float) -> float:
    """Return the largest threshold that at most `miss_rate` of new scores fall below.

    0 if there are too few scores for any.
    """
    place = floor(miss_rate * (len(scores) + 1))
    return sorted(scores)[place - 1] if place else 0.0


def learn_thresholds(
    answerable: Sequence[RankedQuestion], coverage: float, false_refusals: float
) -> Thresholds:
    """Learn from questions that the documents answer.

    A passage that was not found counts as the lowest score: no trimming can keep it.
    """
    # Questions that were refused for a missing code or name have no place among probabilities.
    probabilities = [
        item.probability
        for item in answerable
        if item.probability is not None and not item.lacks_terms
    ]
    shares = [item.passage_share or 0.0 for item in answerable]
    return Thresholds(
        find_lower_quantile(probabilities, false_refusals) if probabilities else None,
        # Passages of equal score are kept or dropped together.
        max(0.0, find_lower_quantile(shares, 1 - coverage)) if shares else None,
    )


def calibrate(
    exam: Exam, judged: Sequence[RankedQuestion], request: CalibrationRequest
) -> Calibration:
    """Learn from judged questions if there are enough, else from the exam, else nothing."""
    examined = [item for item in exam.items if not item.hidden]
    basis: CalibrationBasis = "uncalibrated"
    thresholds, n_questions = Thresholds(None, None), 0
    if len(judged) >= request.min_questions:
        basis, n_questions = "judgements", len(judged)
        thresholds = learn_thresholds(judged, request.coverage, request.false_refusals)
    elif len(examined) >= request.min_questions:
        basis, n_questions = "exam", len(examined)
        learned = learn_thresholds(examined, request.coverage, request.false_refusals)
        thresholds = Thresholds(
            _limit(learned.min_confidence, request.max_confidence),
            _limit(learned.trim, request.max_trim),
        )
    return Calibration(
        tenant=exam.tenant,
        generation=exam.generation,
        scores=exam.scores,
        basis=basis,
        questions=n_questions,
        coverage=request.coverage,
        min_confidence=thresholds.min_confidence,
        trim=thresholds.trim,
        exam_id=exam.exam_id,
    )


def _limit(threshold: float | None, highest: float) -> float | None:
    return None if threshold is None else min(threshold, highest)
