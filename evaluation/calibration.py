"""Learn the thresholds of refusal and trimming by split conformal prediction.

Of n exchangeable scores, at least 1 - a of new ones are not below the score at place
floor(a (n + 1)), and at most 1 - a + 1 / (n + 1) (Vovk et al. 2005; Lei et al. 2018). Questions
about one document resemble each other, so the guarantee holds for documents like those examined.

That guarantee is of the mean over exams, and few scores scatter. A threshold that is stricter than
the default must keep its promise with 95 % confidence (Wilks 1941), and one of refusal must also be
shown to refuse more of the questions without an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, floor, lgamma, log, log1p
from statistics import fmean

import numpy as np

from evaluation.exam import compute_share
from retrieval.evidence_model import EVIDENCE_MODEL
from schemas.answer_profiles import AnswerProfile
from schemas.exams import (
    Calibration,
    CalibrationBasis,
    CalibrationRequest,
    DefaultReason,
    Exam,
    ExamItem,
    RankedQuestion,
)

MAX_RISK = 0.05
"""Highest accepted probability that a threshold stricter than the default breaks its promise."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    min_confidence: float | None
    trim: float | None


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """`reason` is set where the default threshold of refusal stays."""

    calibration: Calibration
    reason: DefaultReason | None


def find_lower_quantile(scores: Sequence[float], miss_rate: float) -> float:
    """Return the largest threshold that at most `miss_rate` of new scores fall below.

    0 if there are too few scores for any.
    """
    place = floor(miss_rate * (len(scores) + 1))
    return sorted(scores)[place - 1] if place else 0.0


def find_safe_quantile(scores: Sequence[float], miss_rate: float) -> float:
    """Return the largest threshold below which more than `miss_rate` of new scores fall with a
    probability of at most `MAX_RISK`. 0 if there are too few scores for any.
    """
    n_scores, place, risk = len(scores), 0, 0.0
    # The risk of place k is the probability of fewer than k misses among the scores (binomial).
    while miss_rate > 0 and place < n_scores:
        n_combinations = lgamma(n_scores + 1) - lgamma(place + 1) - lgamma(n_scores - place + 1)
        risk += exp(
            n_combinations + place * log(miss_rate) + (n_scores - place) * log1p(-miss_rate)
        )
        if risk > MAX_RISK:
            break
        place += 1
    return sorted(scores)[place - 1] if place else 0.0


def learn_thresholds(
    answerable: Sequence[RankedQuestion], coverage: float, false_refusals: float
) -> Thresholds:
    """Learn from questions that the documents answer.

    A passage that was not found counts as the lowest score: no trimming can keep it.
    """
    probabilities = _list_probabilities(answerable)
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
) -> CalibrationResult:
    """Learn from judged questions if there are enough, else from the exam, else nothing."""
    examined = [item for item in exam.items if not item.hidden]
    hidden = [item for item in exam.items if item.hidden]
    basis: CalibrationBasis = "uncalibrated"
    thresholds, n_questions = Thresholds(None, None), 0
    reason: DefaultReason | None = "too_few_questions"
    if len(judged) >= request.min_questions:
        basis, n_questions = "judgements", len(judged)
        learned = learn_thresholds(judged, request.coverage, request.false_refusals)
        thresholds, reason = _limit_strictness(learned, judged, None, request)
    elif len(examined) >= request.min_questions:
        basis, n_questions = "exam", len(examined)
        learned = learn_thresholds(examined, request.coverage, request.false_refusals)
        limited = Thresholds(
            _limit(learned.min_confidence, request.max_confidence),
            _limit(learned.trim, request.max_trim),
        )
        thresholds, reason = _limit_strictness(limited, examined, hidden, request)
    calibration = Calibration(
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
    return CalibrationResult(calibration, reason)


def _limit_strictness(
    learned: Thresholds,
    answerable: Sequence[RankedQuestion],
    hidden: Sequence[RankedQuestion] | None,
    request: CalibrationRequest,
) -> tuple[Thresholds, DefaultReason | None]:
    """Lower thresholds that are stricter than the defaults to what the questions allow.

    `hidden` are questions without an answer, None where there cannot be any.
    """
    default_trim, default = AnswerProfile().trim, EVIDENCE_MODEL.refuse_below
    trim, refusal = learned.trim, learned.min_confidence
    if trim is not None and trim > default_trim:
        shares = [item.passage_share or 0.0 for item in answerable]
        trim = min(trim, max(default_trim, find_safe_quantile(shares, 1 - request.coverage)))
    if refusal is None or refusal <= default:
        return Thresholds(refusal, trim), None
    probabilities = _list_probabilities(answerable)
    refusal = min(refusal, find_safe_quantile(probabilities, request.false_refusals))
    if refusal <= default:
        return Thresholds(None, trim), "interval"
    if hidden is not None and not _has_gain(
        probabilities, _list_probabilities(hidden), default, refusal
    ):
        return Thresholds(None, trim), "no_gain"
    return Thresholds(refusal, trim), None


def _has_gain(
    answerable: Sequence[float], hidden: Sequence[float], default: float, threshold: float
) -> bool:
    """Tell whether the threshold surely refuses a larger share more of the hidden questions than of
    the answerable ones, by their 95 % intervals.
    """
    gained, lost = (
        compute_share(sum(default <= score < threshold for score in scores), len(scores))
        for scores in (hidden, answerable)
    )
    return bool(hidden) and bool(gained["low"] > lost["high"])


def _list_probabilities(items: Sequence[RankedQuestion]) -> list[float]:
    # Questions that were refused for a missing code or name have no place among probabilities.
    return [
        item.probability for item in items if item.probability is not None and not item.lacks_terms
    ]


def _limit(threshold: float | None, highest: float) -> float | None:
    return None if threshold is None else min(threshold, highest)
