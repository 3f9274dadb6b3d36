"""Trimming: contexts far below the best one are noise to whoever answers."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.expand import RankedParent


def trim(parents: Sequence[RankedParent], share: float, background: float) -> list[RankedParent]:
    """Those that score at least `share` of the best one, counted above the background; in the order given. The best stays in any case.
    Beside reranked ones, a parent that was not counts as the least that was: its fused score is of another scale."""
    reranked = [parent.rerank - background for parent in parents if parent.rerank is not None]
    least = min(reranked, default=0.0)
    strengths = [least if reranked and parent.rerank is None else strength(parent, background) for parent in parents]
    most = max(strengths, default=0.0)
    if most <= 0:
        return list(parents[:1])
    return [parent for parent, value in zip(parents, strengths, strict=True) if value >= share * most]


def strength(parent: RankedParent, background: float) -> float:
    """Rerank score above the background; without one the fused score, whose zero is the average candidate (z-scores) or no rank at all (RRF)."""
    return parent.score if parent.rerank is None else parent.rerank - background
