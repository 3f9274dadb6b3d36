"""Ranking metrics, the overlap of two rankings, and the significance of a difference.

Judged by documents: nDCG, MRR and recall with binary relevance. nDCG after Järvelin and
Kekäläinen (2002) with discount log2(rank + 1), as trec_eval's ndcg_cut computes it. Partially
judged rankings are measured over condensed lists, without unjudged passages (Sakai, Alternatives to
Bpref, SIGIR 2007). Differences are tested by paired bootstrap (Efron and Tibshirani 1993, chapter
16).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2
from statistics import fmean
from typing import TypeVar
from uuid import UUID

import numpy as np

Measure = Callable[[Sequence[str], Mapping[str, int]], float]
IdT = TypeVar("IdT")
Run = Mapping[str, Sequence[tuple[str, float]]]
"""Query id → (document id, score), best first."""


def ndcg(k: int, ranked: Sequence[IdT], grades: Mapping[IdT, int]) -> float:
    """Return the normalized discounted cumulative gain; an item without a grade counts as 0."""
    # Over all judgements, also of items that the ranking lacks.
    ideal = _sum_discounted(sorted(grades.values(), reverse=True)[:k])
    return _sum_discounted(grades.get(item, 0) for item in ranked[:k]) / ideal if ideal else 0.0


def _sum_discounted(gains: Iterable[int]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, 1))


def reciprocal_rank(k: int, ranked: Sequence[IdT], grades: Mapping[IdT, int]) -> float:
    """Return the reciprocal rank of the first item with a grade of 1 or more."""
    places = enumerate(ranked[:k], 1)
    return next((1 / rank for rank, item in places if grades.get(item, 0) > 0), 0.0)


def recall(k: int, ranked: Sequence[str], relevant: Collection[str]) -> float:
    return len(set(ranked[:k]).intersection(relevant)) / len(relevant) if relevant else 0.0


MEASURES: Mapping[str, Measure] = {
    "ndcg@10": partial(ndcg, 10),
    "mrr@10": partial(reciprocal_rank, 10),
    **{f"recall@{k}": partial(recall, k) for k in (2, 5, 10, 50, 100)},
}


def measure_queries(
    run: Run, relevant: Mapping[str, Collection[str]], measure: Measure
) -> dict[str, float]:
    """Return the value of each judged query. A query without results has the value 0."""
    return {
        query: measure([item for item, _ in run.get(query, ())], dict.fromkeys(relevant_ids, 1))
        for query, relevant_ids in relevant.items()
        if relevant_ids
    }


def measure_run(run: Run, relevant: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Return the mean of every measure over the judged queries, rounded to four places."""
    return {
        name: round(fmean(measure_queries(run, relevant, measure).values() or [0.0]), 4)
        for name, measure in MEASURES.items()
    }


SCHEMA_VERSION = 1  # of the reports as JSON


def compute_percentiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p95": None}
    return {
        "p50": round(float(np.percentile(values, 50)), 2),
        "p95": round(float(np.percentile(values, 95)), 2),
    }


MIN_OVERLAP = 0.5


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage of a ranking, by its range in the document's text.

    `words` replace the range if the two texts were produced differently, so that offsets are not
    comparable.
    """

    parent_id: UUID
    document_id: UUID
    char_start: int
    char_end: int
    words: frozenset[str] = frozenset()


def match_passages(a: Sequence[RankedPassage], b: Sequence[RankedPassage]) -> list[tuple[int, int]]:
    """Return the ranks, from 0, of matching passages in both.

    Matches each passage once, in the order of `a`.
    """
    # Matches are removed, so that one passage cannot stand for two.
    unmatched = dict(enumerate(b))
    matches = []
    for rank, passage in enumerate(a):
        best_rank = max(
            unmatched, key=lambda other: compute_similarity(passage, unmatched[other]), default=None
        )
        if (
            best_rank is not None
            and compute_similarity(passage, unmatched[best_rank]) >= MIN_OVERLAP
        ):
            del unmatched[best_rank]
            matches.append((rank, best_rank))
    return matches


def compute_overlap(a: Sequence[RankedPassage], b: Sequence[RankedPassage]) -> float:
    """Return the share of the longer ranking that both have; 1 for two empty rankings."""
    max_length = max(len(a), len(b))
    return len(match_passages(a, b)) / max_length if max_length else 1.0


def compute_similarity(first: RankedPassage, second: RankedPassage) -> float:
    """Return the overlap of two passages, from 0 to 1."""
    if first.document_id != second.document_id:
        return 0.0
    # Offsets in texts of two parsers do not correspond, but words do.
    if first.words or second.words:
        min_length = min(len(first.words), len(second.words))
        return len(first.words & second.words) / min_length if min_length else 0.0
    n_shared = min(first.char_end, second.char_end) - max(first.char_start, second.char_start)
    # Relative to the shorter passage, since generations may cut chunks of other sizes.
    min_length = min(first.char_end - first.char_start, second.char_end - second.char_start)
    return max(0, n_shared) / min_length if min_length > 0 else 0.0


def list_judged_units(ranked: Sequence[RankedPassage], grades: Mapping[UUID, int]) -> list[UUID]:
    """Return the judged parents and wholly judged documents in order of first occurrence."""
    # fromkeys keeps the first occurrence, which is the best rank.
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


SAMPLES, LEVEL = 10_000, 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean difference (b − a) over the shared queries, with its percentile interval."""

    difference: float
    low: float
    high: float
    queries: int


def paired_interval(a: Mapping[str, float], b: Mapping[str, float]) -> Interval:
    """Return the 95 % interval of the difference. Raises ValueError if the runs share no query."""
    # Sorted, so that the samples do not depend on the order of the runs.
    shared_queries = sorted(a.keys() & b.keys())
    if not shared_queries:
        raise ValueError("the two runs share no query")
    differences = np.array([b[query] - a[query] for query in shared_queries])
    # A fixed seed, so that the same comparison always passes or fails the same gate.
    sample_indexes = np.random.default_rng(0).integers(
        0, len(shared_queries), (SAMPLES, len(shared_queries)), dtype=np.int32
    )
    means = differences[sample_indexes].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(differences.mean()), float(low), float(high), len(shared_queries))
