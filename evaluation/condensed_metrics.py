"""Metrics of partially judged rankings, computed over condensed lists, without unjudged passages.

Sakai, Alternatives to Bpref, SIGIR 2007. Graded nDCG has the grade as gain and the discount
log2(rank + 1), as trec_eval's ndcg_cut computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from uuid import UUID

from evaluation.ranking_overlap import RankedPassage


def list_judged_units(ranked: Sequence[RankedPassage], grades: Mapping[UUID, int]) -> list[UUID]:
    """Return the judged parents, and the documents judged as a whole, in order of first occurrence."""
    units = (
        unit
        for passage in ranked
        for unit in (passage.parent_id, passage.document_id)
        if unit in grades
    )
    return list(dict.fromkeys(units))


def compute_judged_share(ranked: Sequence[RankedPassage], grades: Mapping[UUID, int]) -> float:
    """Return the share of passages that are judged."""
    n_judged = sum(
        passage.parent_id in grades or passage.document_id in grades for passage in ranked
    )
    return n_judged / len(ranked) if ranked else 0.0


def graded_ndcg(k: int, units: Sequence[UUID], grades: Mapping[UUID, int]) -> float:
    ideal = _sum_discounted(sorted(grades.values(), reverse=True)[:k])
    return _sum_discounted(grades[unit] for unit in units[:k]) / ideal if ideal else 0.0


def graded_reciprocal_rank(k: int, units: Sequence[UUID], grades: Mapping[UUID, int]) -> float:
    """Return the reciprocal rank of the first unit with a grade of 1 or more."""
    return next((1 / rank for rank, unit in enumerate(units[:k], 1) if grades[unit] > 0), 0.0)


def _sum_discounted(gains: Iterable[int]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, 1))
