"""Ranking metrics: nDCG, MRR, recall. Relevance is binary; the order of ties is the ranking's.

nDCG after Järvelin and Kekäläinen (2002) with gain 1 and discount log2(rank + 1), as trec_eval's
ndcg_cut computes it for binary judgements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import log2
from statistics import fmean

Measure = Callable[[Sequence[str], Collection[str]], float]
Run = Mapping[str, Sequence[tuple[str, float]]]
"""Query id → (document id, score), best first."""


def ndcg(k: int, ranked: Sequence[str], relevant: Collection[str]) -> float:
    gain = sum(1 / log2(rank + 1) for rank, item in enumerate(ranked[:k], 1) if item in relevant)
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return gain / ideal if ideal else 0.0


def reciprocal_rank(k: int, ranked: Sequence[str], relevant: Collection[str]) -> float:
    return next((1 / rank for rank, item in enumerate(ranked[:k], 1) if item in relevant), 0.0)


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
        query: measure([item for item, _ in run.get(query, ())], relevant_ids)
        for query, relevant_ids in relevant.items()
        if relevant_ids
    }


def measure_run(run: Run, relevant: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Return the mean of every measure over the judged queries, rounded to four places."""
    return {
        name: round(fmean(measure_queries(run, relevant, measure).values() or [0.0]), 4)
        for name, measure in MEASURES.items()
    }
