"""Drop parents that score far below the best one: they are noise in an answer."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.parent_expansion import RankedParent


def trim_parents(
    parents: Sequence[RankedParent], share: float, background: float
) -> list[RankedParent]:
    """Keep the parents that score at least `share` of the best one above the background, in the
    given order.

    The best parent always stays. A parent without a rerank score counts as the lowest reranked one,
    since fused scores are on another scale.
    """
    reranked = [
        parent.rerank_score - background for parent in parents if parent.rerank_score is not None
    ]
    lowest_reranked = min(reranked, default=0.0)
    strengths = [
        lowest_reranked
        if reranked and parent.rerank_score is None
        else get_strength(parent, background)
        for parent in parents
    ]
    highest = max(strengths, default=0.0)
    if highest <= 0:
        return list(parents[:1])
    return [
        parent for parent, value in zip(parents, strengths, strict=True) if value >= share * highest
    ]


def get_strength(parent: RankedParent, background: float) -> float:
    """Return the rerank score above the background, or the fused score without one.

    Its zero is the average candidate (z-scores) or no rank at all (RRF).
    """
    return parent.score if parent.rerank_score is None else parent.rerank_score - background
