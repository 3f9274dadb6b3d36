"""Paired bootstrap test of the difference of two rankings (Efron and Tibshirani 1993, chapter 16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean difference (b − a) over the shared queries, with its percentile interval."""

    difference: float
    low: float
    high: float
    queries: int


def paired_interval(
    a: Mapping[str, float], b: Mapping[str, float], *, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the interval of the difference. Raises ValueError if the runs share no query."""
    shared_queries = sorted(a.keys() & b.keys())
    if not shared_queries:
        raise ValueError("the two runs share no query")
    differences = np.array([b[query] - a[query] for query in shared_queries])
    sample_indexes = np.random.default_rng(seed).integers(
        0, len(shared_queries), (SAMPLES, len(shared_queries)), dtype=np.int32
    )
    means = differences[sample_indexes].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(differences.mean()), float(low), float(high), len(shared_queries))
