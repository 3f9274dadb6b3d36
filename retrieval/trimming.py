"""Trimming: contexts far below the best one are noise to whoever answers."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.parent_expansion import RankedParent


def trim_parents(parents: Sequence[RankedParent], share: float, background: float) -> list[RankedParent]:
    """Those that score at least `share` of the best one, counted above the background; in the order given. The best stays in any case.
    Beside reranked ones, a parent that was not counts as the least that was: its fused score is of another scale."""
    reranked = [parent.rerank_score - background for parent in parents if parent.rerank_score is not None]
    lowest_reranked = min(reranked, default=0.0)
    strengths = [lowest_reranked if reranked and parent.rerank_score is None else get_strength(parent, background) for parent in parents]
    highest = max(strengths, default=0.0)
    if highest <= 0:
        return list(parents[:1])
    return [parent for parent, value in zip(parents, strengths, strict=True) if value >= share * highest]


def get_strength(parent: RankedParent, background: float) -> float:
    """Rerank score above the background; without one the fused score, whose zero is the average candidate (z-scores) or no rank at all (RRF)."""
    return parent.score if parent.rerank_score is None else parent.rerank_score - background
