"""Compare two generations on the same questions: the report of `generations compare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any
from uuid import UUID

from evaluation.bootstrap import Interval, paired_interval
from evaluation.condensed_metrics import (
    compute_judged_share,
    graded_ndcg,
    graded_reciprocal_rank,
    list_judged_units,
)
from evaluation.ranking_overlap import RankedPassage, compute_overlap, match_passages
from evaluation.report import compute_percentiles

TOP_K = 10
RESULT_DEPTH = 50
"""Results to request per question, since judged passages may rank below the first ten."""
N_WORST = 10
SCHEMA_VERSION = 1
SIDES = ("A", "B")


@dataclass(frozen=True, slots=True)
class SideResult:
    """One generation's response to a question.

    `grades` are the question's judgements, mapped to its chunks.
    """

    passages: Sequence[RankedPassage]
    is_refused: bool
    latency_ms: float
    model_calls: int = 0
    tokens: int = 0
    grades: Mapping[UUID, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComparedQuestion:
    id: str
    query: str
    source: str
    """`golden`, `real` or `feedback`."""
    a: SideResult
    b: SideResult
    run_id: UUID | None = None

    @property
    def sides(self) -> dict[str, SideResult]:
        return {"A": self.a, "B": self.b}

    @property
    def is_judged(self) -> bool:
        """Whether both generations have a relevant judgement."""
        return all(any(grade > 0 for grade in side.grades.values()) for side in (self.a, self.b))


@dataclass(frozen=True, slots=True)
class FailedQuestion:
    """A question that failed, and why."""

    query: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class JudgementCounts:
    """The number of judgements, and how many each generation has a chunk for."""

    total: int
    mapped: Mapping[str, int]


COMPARISON_MEASURES: Mapping[str, Callable[[SideResult], float]] = {
    "ndcg@10": lambda side: graded_ndcg(
        TOP_K, list_judged_units(side.passages, side.grades), side.grades
    ),
    "mrr@10": lambda side: graded_reciprocal_rank(
        TOP_K, list_judged_units(side.passages, side.grades), side.grades
    ),
}


def build_comparison_report(
    generations: Mapping[str, str],
    questions: Sequence[ComparedQuestion],
    judgements: JudgementCounts,
    index_bytes: Mapping[str, int],
    failures: Mapping[str, FailedQuestion],
) -> dict[str, Any]:
    """Build the report. Differences are B − A.

    `failures` are keyed by question id, since a text may occur more than once.
    """
    question_judgements = [question for question in questions if question.is_judged]
    values = {
        name: {
            side: {entry.id: measure(entry.sides[side]) for entry in question_judgements}
            for side in SIDES
        }
        for name, measure in COMPARISON_MEASURES.items()
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "generations": dict(generations),
        "queries": len(questions),
        "judged_queries": len(question_judgements),
        "sources": {
            source: sum(entry.source == source for entry in questions)
            for source in ("golden", "real", "feedback")
        },
        "failed": {question_id: asdict(failure) for question_id, failure in failures.items()},
        "overlap@10": _mean([_compute_overlap(entry) for entry in questions]),
        "rank_moves": _summarize_moves(questions),
        "metrics": {
            side: {name: _mean(list(values[name][side].values())) for name in COMPARISON_MEASURES}
            for side in SIDES
        },
        "intervals": _compute_intervals(questions, values),
        "judgements": judgements.total,
        "mapped_share": {side: _ratio(judgements.mapped[side], judgements.total) for side in SIDES},
        "judged_share": {
            side: _mean(
                [
                    compute_judged_share(
                        entry.sides[side].passages[:TOP_K], entry.sides[side].grades
                    )
                    for entry in question_judgements
                ]
            )
            for side in SIDES
        },
        "refusals": {
            side: _mean([float(entry.sides[side].is_refused) for entry in questions])
            for side in SIDES
        },
        "latency_ms": {
            side: compute_percentiles([entry.sides[side].latency_ms for entry in questions])
            for side in SIDES
        },
        "cost": {
            side: _sum_cost([entry.sides[side] for entry in questions], index_bytes[side])
            for side in SIDES
        },
        "worst": [
            _format_question(entry, values) for entry in _select_worst(questions, values["ndcg@10"])
        ],
    }


def _compute_overlap(question: ComparedQuestion) -> float:
    return compute_overlap(question.a.passages[:TOP_K], question.b.passages[:TOP_K])


def _summarize_moves(questions: Sequence[ComparedQuestion]) -> dict[str, Any]:
    """Count the passages of A's first ten that stayed, rose, fell or left B's first ten.

    `mean_distance` is the mean change of rank of the passages that are in both.
    """
    moves = [
        b - a
        for question in questions
        for a, b in match_passages(question.a.passages[:TOP_K], question.b.passages[:TOP_K])
    ]
    n_passages = sum(len(question.a.passages[:TOP_K]) for question in questions)
    counts = {
        "same": sum(move == 0 for move in moves),
        "up": sum(move < 0 for move in moves),
        "down": sum(move > 0 for move in moves),
    }
    return {
        **counts,
        "left": n_passages - len(moves),
        "mean_distance": _mean([float(abs(move)) for move in moves]),
    }


def _compute_intervals(
    questions: Sequence[ComparedQuestion], values: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> dict[str, Any]:
    per_query = {
        **values,
        "refusals": {
            side: {question.id: float(question.sides[side].is_refused) for question in questions}
            for side in SIDES
        },
        "latency_ms": {
            side: {question.id: question.sides[side].latency_ms for question in questions}
            for side in SIDES
        },
    }
    overlaps = {
        "A": {question.id: 0.0 for question in questions},
        "B": {question.id: _compute_overlap(question) for question in questions},
    }
    intervals = {
        name: _compute_interval(sides)
        for name, sides in {**per_query, "overlap@10": overlaps}.items()
    }
    return {name: interval for name, interval in intervals.items() if interval is not None}


def _compute_interval(sides: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
    if not sides["A"]:
        return None
    interval: Interval = paired_interval(sides["A"], sides["B"])
    return {
        "difference": _round(interval.difference),
        "low": _round(interval.low),
        "high": _round(interval.high),
        "queries": interval.queries,
    }


def _select_worst(
    questions: Sequence[ComparedQuestion], ndcg: Mapping[str, Mapping[str, float]]
) -> list[ComparedQuestion]:
    """Select the questions that lost most by the judgements, then those with the least overlap."""

    def order(question: ComparedQuestion) -> tuple[float, float, str]:
        ndcg_change = (
            ndcg["B"][question.id] - ndcg["A"][question.id] if question.id in ndcg["A"] else 0.0
        )
        return (min(ndcg_change, 0.0), _compute_overlap(question), question.id)

    changed_questions = [question for question in questions if order(question)[:2] != (0.0, 1.0)]
    return sorted(changed_questions, key=order)[:N_WORST]


def _format_question(
    question: ComparedQuestion, values: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> dict[str, Any]:
    return {
        "query": question.query,
        "source": question.source,
        "run_id": str(question.run_id) if question.run_id else None,
        "overlap@10": _round(_compute_overlap(question)),
        **{
            name: {side: _round(values[name][side][question.id]) for side in SIDES}
            if question.is_judged
            else None
            for name in COMPARISON_MEASURES
        },
        "refused": {side: question.sides[side].is_refused for side in SIDES},
    }


def _sum_cost(sides: Sequence[SideResult], index_bytes: int) -> dict[str, int]:
    return {
        "model_calls": sum(side.model_calls for side in sides),
        "tokens": sum(side.tokens for side in sides),
        "index_bytes": index_bytes,
    }


def _ratio(count: int, total: int) -> float | None:
    return _round(count / total) if total else None


def _mean(values: Sequence[float]) -> float | None:
    return _round(fmean(values)) if values else None


def _round(value: float) -> float:
    return round(value, 4)
