"""Learn the thresholds of refusal and trimming by split conformal prediction.

Of n exchangeable scores, at least 1 - a of new ones are not below the score at place
floor(a (n + 1)), and at most 1 - a + 1 / (n + 1) (Vovk et al. 2005; Lei et al. 2018). Questions
about one document resemble each other, so the guarantee holds for documents like those examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from statistics import fmean

import numpy as np

from schemas.exams import (
    Calibration,
    CalibrationBasis,
    CalibrationRequest,
    Exam,
    ExamItem,
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


N_SPLITS = 200


def measure_held_out(
    items: Sequence[ExamItem], coverage: float, false_refusals: float
) -> dict[str, float] | None:
    """Learn from half of the documents and measure on the others: means over 200 random splits.

    Without the limits of `calibrate`. None for fewer than two documents.
    """
    answerable = [item for item in items if not item.hidden]
    documents = sorted({item.document_id for item in answerable})
    if len(documents) < 2:
        return None
    random = np.random.default_rng(0)
    measured: list[tuple[float, float, float]] = []
    for _ in range(N_SPLITS):
        order = random.permutation(len(documents))
        learned = {documents[place] for place in order[: len(documents) // 2]}
        thresholds = learn_thresholds(
            [item for item in answerable if item.document_id in learned], coverage, false_refusals
        )
        trim, min_confidence = thresholds.trim or 0.0, thresholds.min_confidence or 0.0
        held_out = [item for item in answerable if item.document_id not in learned]
        measured.append(
            (
                fmean((item.passage_share or 0.0) >= trim for item in held_out),
                fmean(sum(share >= trim for share in item.shares) for item in held_out),
                fmean(
                    item.probability is not None and item.probability < min_confidence
                    for item in held_out
                ),
            )
        )
    names = ("coverage", "passages", "false_refusals")
    means = (round(fmean(column), 4) for column in zip(*measured, strict=True))
    return dict(zip(names, means, strict=True))


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
