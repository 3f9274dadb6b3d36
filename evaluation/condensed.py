"""Measures of rankings of which only some is judged: what nobody judged is left out (condensed lists: Sakai, Alternatives to Bpref, SIGIR 2007).

Graded nDCG with the grade as gain and discount log2(rank + 1), as trec_eval's ndcg_cut computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from uuid import UUID

from evaluation.agreement import Found


def judged_units(ranked: Sequence[Found], grades: Mapping[UUID, int]) -> list[UUID]:
    """Parents that were judged, and documents that were judged as a whole, in the order in which they are first met."""
    found = (unit for passage in ranked for unit in (passage.parent_id, passage.document_id) if unit in grades)
    return list(dict.fromkeys(found))


def judged_share(ranked: Sequence[Found], grades: Mapping[UUID, int]) -> float:
    """Of the passages that were found."""
    judged = sum(passage.parent_id in grades or passage.document_id in grades for passage in ranked)
    return judged / len(ranked) if ranked else 0.0


def graded_ndcg(k: int, units: Sequence[UUID], grades: Mapping[UUID, int]) -> float:
    ideal = _discounted(sorted(grades.values(), reverse=True)[:k])
    return _discounted(grades[unit] for unit in units[:k]) / ideal if ideal else 0.0


def first_relevant(k: int, units: Sequence[UUID], grades: Mapping[UUID, int]) -> float:
    """The reciprocal rank of the first with a grade of 1 or more."""
    return next((1 / rank for rank, unit in enumerate(units[:k], 1) if grades[unit] > 0), 0.0)


def _discounted(gains: Iterable[int]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, 1))
