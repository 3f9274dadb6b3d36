"""Request and report of `generations compare`: two generations on the same questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Self
from uuid import UUID

from pydantic import Field, model_validator

from evaluation.metrics import (
    RankedPassage,
    compute_judged_share,
    compute_overlap,
    compute_percentiles,
    list_judged_units,
    match_passages,
    ndcg,
    paired_interval,
    reciprocal_rank,
)
from evaluation.set_files import read_lines
from schemas.channels import Channel
from schemas.judgements import MAX_QUOTE_CHARS, Grade
from schemas.models import Request
from schemas.questions import Filters, QueryText
from schemas.timestamps import Timestamp
from schemas.values import Value

EXPECTED_FORMAT = (
    'Write one JSON object per line: {"query": "…", '
    '"judgements": [{"external_id": "…", "quote": "…", "grade": 3}]}.'
)


class CharacterSpan(Value):
    char_start: int = Field(ge=0, description="Offset of the first character.")
    char_end: int = Field(ge=0, description="Offset after the last character.")


class GoldenJudgement(Value):
    """A judged passage, given by quote, by character range, or both; without either, the whole
    document.
    """

    external_id: str | None = None
    """External id of the document. For a document without one, its source URI or file name."""
    document_id: UUID | None = None
    """Id of the document, instead of `external_id`."""
    revision: int | None = None
    """Revision that the character range refers to. A quote may have moved since."""
    span: CharacterSpan | None = Field(None, description="Character range of the passage.")
    quote: str | None = Field(None, min_length=1, max_length=MAX_QUOTE_CHARS)
    """Text of the passage."""
    grade: Grade = 1

    @model_validator(mode="after")
    def check_document_named(self) -> Self:
        if self.external_id is None and self.document_id is None:
            raise ValueError("set external_id or document_id")
        return self


class GoldenQuestion(Request):
    """A question with known judgements."""

    query: QueryText = Field(description="The question.")
    judgements: list[GoldenJudgement] = Field(default=[], max_length=1000)
    """Relevant and irrelevant passages."""
    language: str | None = None
    """Language of the question as a BCP 47 tag. Detected if omitted."""
    filters: Filters = Field(Filters(), description="Conditions that the documents must match.")
    channels: list[Channel] | None = Field(None, min_length=1)
    """Search only these channels."""


class ComparisonRequest(Request):
    """Compare with golden questions, and with real questions asked between `since` and `until`."""

    golden: list[GoldenQuestion] = Field(default=[], max_length=5000)
    """Questions with known judgements."""
    since: Timestamp | None = None
    """Start of the period for real questions and feedback. UTC if no time zone is given."""
    until: Timestamp | None = Field(None, description="End of the period.")
    queries: int = Field(200, ge=0, le=5000)
    """Maximum number of real questions, the latest first."""
    answers: bool = False
    """Also write answers with the chat model, at the cost of its tokens. Otherwise only ranking and
    refusals are compared.
    """
    profile: str | None = None
    """Profile to use instead of the one of each question."""
    profile_b: str | None = None
    """Profile of the second side, if it differs from that of the first."""


class ComparisonBody(ComparisonRequest):
    a: str = Field(description="Generation to compare with.")
    b: str = Field(description="Generation to compare. May be `a`, to compare two profiles.")


def read_golden(path: Path) -> list[GoldenQuestion]:
    """Read golden questions. Raises InvalidRequest with the line number."""
    return read_lines(path, GoldenQuestion.model_validate, EXPECTED_FORMAT)


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
        """Return whether both generations have a relevant judgement."""
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


# Over condensed lists, because neither generation's results are judged completely.
COMPARISON_MEASURES: Mapping[str, Callable[[SideResult], float]] = {
    "ndcg@10": lambda side: ndcg(TOP_K, list_judged_units(side.passages, side.grades), side.grades),
    "mrr@10": lambda side: reciprocal_rank(
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
    # A paired difference needs a value on both sides.
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
        "mapped_share": {
            side: _round(judgements.mapped[side] / judgements.total) if judgements.total else None
            for side in SIDES
        },
        "judged_share": {side: _compute_judged_share(questions, side) for side in SIDES},
        "refusals": {
            side: _mean([float(entry.sides[side].is_refused) for entry in questions])
            for side in SIDES
        },
        "latency_ms": {
            side: compute_percentiles([entry.sides[side].latency_ms for entry in questions])
            for side in SIDES
        },
        "cost": {
            side: _sum_cost(questions, side) | {"index_bytes": index_bytes[side]} for side in SIDES
        },
        "worst": [
            _format_question(entry, values) for entry in _select_worst(questions, values["ndcg@10"])
        ],
    }


def _compute_judged_share(questions: Sequence[ComparedQuestion], side: str) -> float | None:
    sides = [question.sides[side] for question in questions if question.is_judged]
    return _mean([compute_judged_share(one.passages[:TOP_K], one.grades) for one in sides])


def _sum_cost(questions: Sequence[ComparedQuestion], side: str) -> dict[str, int]:
    sides = [question.sides[side] for question in questions]
    return {
        "model_calls": sum(one.model_calls for one in sides),
        "tokens": sum(one.tokens for one in sides),
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
    # Compared with zero, which gives an interval of the overlap itself.
    overlaps = {
        "A": {question.id: 0.0 for question in questions},
        "B": {question.id: _compute_overlap(question) for question in questions},
    }
    intervals = {}
    for name, sides in {**per_query, "overlap@10": overlaps}.items():
        if sides["A"]:
            interval = paired_interval(sides["A"], sides["B"])
            intervals[name] = {
                "difference": _round(interval.difference),
                "low": _round(interval.low),
                "high": _round(interval.high),
                "queries": interval.queries,
            }
    return intervals


def _select_worst(
    questions: Sequence[ComparedQuestion], ndcg: Mapping[str, Mapping[str, float]]
) -> list[ComparedQuestion]:
    """Select the questions that lost most by the judgements, then those with the least overlap."""

    def order(question: ComparedQuestion) -> tuple[float, float, str]:
        ndcg_change = (
            ndcg["B"][question.id] - ndcg["A"][question.id] if question.id in ndcg["A"] else 0.0
        )
        # Gains count as zero, so that improved questions rank by their overlap.
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


def _mean(values: Sequence[float]) -> float | None:
    return _round(fmean(values)) if values else None


def _round(value: float) -> float:
    return round(value, 4)
