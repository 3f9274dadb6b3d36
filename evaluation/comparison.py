"""One generation against another on the same questions: the report of `generations compare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any
from uuid import UUID

from evaluation.agreement import Found, overlap, pairs
from evaluation.bootstrap import Interval, paired_interval
from evaluation.condensed import first_relevant, graded_ndcg, judged_share, judged_units
from evaluation.report import percentiles

TOP = 10
DEPTH = 50
"""Results that are asked for: what is judged may lie below the first ten."""
WORST = 10
SCHEMA_VERSION = 1
SIDES = ("A", "B")


@dataclass(frozen=True, slots=True)
class Answered:
    """What one generation made of a question. `grades` are the judgements of the question on its own chunks."""

    found: Sequence[Found]
    refused: bool
    ms: float
    model_calls: int = 0
    tokens: int = 0
    grades: Mapping[UUID, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replayed:
    id: str
    query: str
    source: str
    """golden, real or feedback."""
    a: Answered
    b: Answered
    run_id: UUID | None = None

    @property
    def sides(self) -> dict[str, Answered]:
        return {"A": self.a, "B": self.b}

    @property
    def judged(self) -> bool:
        """Something relevant is known in both."""
        return all(any(grade > 0 for grade in side.grades.values()) for side in (self.a, self.b))


@dataclass(frozen=True, slots=True)
class Unasked:
    """A question that could not be asked, and why."""

    query: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Judgements:
    """How many there are, and how many of them each generation has a chunk for."""

    given: int
    mapped: Mapping[str, int]


MEASURES: Mapping[str, Callable[[Answered], float]] = {
    "ndcg@10": lambda side: graded_ndcg(TOP, judged_units(side.found, side.grades), side.grades),
    "mrr@10": lambda side: first_relevant(TOP, judged_units(side.found, side.grades), side.grades),
}


def comparison_report(
    generations: Mapping[str, str], replayed: Sequence[Replayed], judgements: Judgements, index_bytes: Mapping[str, int], failed: Mapping[str, Unasked]
) -> dict[str, Any]:
    """`failed` goes by the questions' ids, for a text may be asked more than once; differences are B − A."""
    judged = [question for question in replayed if question.judged]
    values = {name: {side: {one.id: measure(one.sides[side]) for one in judged} for side in SIDES} for name, measure in MEASURES.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "generations": dict(generations),
        "queries": len(replayed),
        "judged_queries": len(judged),
        "sources": {source: sum(one.source == source for one in replayed) for source in ("golden", "real", "feedback")},
        "failed": {one: asdict(unasked) for one, unasked in failed.items()},
        "overlap@10": _mean([_overlap(one) for one in replayed]),
        "rank_moves": _moves(replayed),
        "metrics": {side: {name: _mean(list(values[name][side].values())) for name in MEASURES} for side in SIDES},
        "intervals": _intervals(replayed, values),
        "judgements": judgements.given,
        "mapped_share": {side: _share(judgements.mapped[side], judgements.given) for side in SIDES},
        "judged_share": {side: _mean([judged_share(one.sides[side].found[:TOP], one.sides[side].grades) for one in judged]) for side in SIDES},
        "refusals": {side: _mean([float(one.sides[side].refused) for one in replayed]) for side in SIDES},
        "latency_ms": {side: percentiles([one.sides[side].ms for one in replayed]) for side in SIDES},
        "cost": {side: _cost([one.sides[side] for one in replayed], index_bytes[side]) for side in SIDES},
        "worst": [_line(one, values) for one in _worst(replayed, values["ndcg@10"])],
    }


def _overlap(question: Replayed) -> float:
    return overlap(question.a.found[:TOP], question.b.found[:TOP])


def _moves(replayed: Sequence[Replayed]) -> dict[str, Any]:
    """Of the passages in A's first ten: how many stayed, rose, fell or left B's first ten, and by how many ranks those that are in both moved on average."""
    moves = [b - a for one in replayed for a, b in pairs(one.a.found[:TOP], one.b.found[:TOP])]
    shown = sum(len(one.a.found[:TOP]) for one in replayed)
    counts = {"same": sum(move == 0 for move in moves), "up": sum(move < 0 for move in moves), "down": sum(move > 0 for move in moves)}
    return {**counts, "left": shown - len(moves), "mean_distance": _mean([float(abs(move)) for move in moves])}


def _intervals(replayed: Sequence[Replayed], values: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    per_query = {
        **values,
        "refusals": {side: {one.id: float(one.sides[side].refused) for one in replayed} for side in SIDES},
        "latency_ms": {side: {one.id: one.sides[side].ms for one in replayed} for side in SIDES},
    }
    agreed = {"A": {one.id: 0.0 for one in replayed}, "B": {one.id: _overlap(one) for one in replayed}}
    found = {name: _interval(sides) for name, sides in {**per_query, "overlap@10": agreed}.items()}
    return {name: interval for name, interval in found.items() if interval is not None}


def _interval(sides: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
    if not sides["A"]:
        return None
    interval: Interval = paired_interval(sides["A"], sides["B"])
    return {"difference": _round(interval.difference), "low": _round(interval.low), "high": _round(interval.high), "queries": interval.queries}


def _worst(replayed: Sequence[Replayed], ndcg: Mapping[str, Mapping[str, float]]) -> list[Replayed]:
    """Those that lost by the judgements, then those of which least is left."""

    def order(one: Replayed) -> tuple[float, float, str]:
        lost = ndcg["B"][one.id] - ndcg["A"][one.id] if one.id in ndcg["A"] else 0.0
        return (min(lost, 0.0), _overlap(one), one.id)

    changed = [one for one in replayed if order(one)[:2] != (0.0, 1.0)]
    return sorted(changed, key=order)[:WORST]


def _line(one: Replayed, values: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    return {
        "query": one.query,
        "source": one.source,
        "run_id": str(one.run_id) if one.run_id else None,
        "overlap@10": _round(_overlap(one)),
        **{name: {side: _round(values[name][side][one.id]) for side in SIDES} if one.judged else None for name in MEASURES},
        "refused": {side: one.sides[side].refused for side in SIDES},
    }


def _cost(sides: Sequence[Answered], index_bytes: int) -> dict[str, int]:
    return {"model_calls": sum(side.model_calls for side in sides), "tokens": sum(side.tokens for side in sides), "index_bytes": index_bytes}


def _share(part: int, whole: int) -> float | None:
    return _round(part / whole) if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return _round(fmean(values)) if values else None


def _round(value: float) -> float:
    return round(value, 4)
