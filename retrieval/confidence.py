"""Rate the confidence in an answer, with reasons that can be checked."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.channels import ChannelCandidates
from retrieval.context_packing import ContextPassage
from retrieval.relevance import RelevanceDecision
from schemas.questions import Confidence

# A best score of at least this many times the threshold is clear.
CLEAR_FACTOR = 1.2


def rate_confidence(
    relevance: RelevanceDecision, contexts: Sequence[ContextPassage], candidates: ChannelCandidates
) -> Confidence:
    """Rate an answer as high, medium or low.

    High: a clear best score, and two sources or a linked entity. Low: refused, no contexts, a
    failed channel, or a score just above the threshold.
    """
    n_sources = len({context.parent.document_id for context in contexts})
    is_clear = (
        relevance.best is not None
        and relevance.threshold is not None
        and relevance.best >= CLEAR_FACTOR * relevance.threshold
    )
    reasons = [
        relevance.reason,
        f"{n_sources} distinct {'source' if n_sources == 1 else 'sources'}",
    ]
    reasons += (
        [f"linked: {', '.join(seed.key for seed in candidates.linked_seeds[:3])}"]
        if candidates.linked_seeds
        else []
    )
    reasons += [f"channel {channel} failed" for channel in candidates.failed]
    if relevance.refused or candidates.failed or not contexts:
        return Confidence(level="low", reasons=reasons)
    if is_clear and (n_sources >= 2 or candidates.linked_seeds):
        return Confidence(level="high", reasons=reasons)
    return Confidence(
        level="medium" if is_clear or relevance.best is None else "low", reasons=reasons
    )
