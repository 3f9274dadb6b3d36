"""How far an answer can be relied on, in words that can be checked."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.channels import ChannelCandidates
from retrieval.context_packing import ContextPassage
from retrieval.relevance import RelevanceDecision
from schemas.questions import Confidence

CLEAR_FACTOR = 1.2
"""Times the threshold from which on the best score is clear."""


def rate_confidence(suitability: RelevanceDecision, contexts: Sequence[ContextPassage], candidates: ChannelCandidates) -> Confidence:
    """High: a clear best score and two sources or a linked name. Low: nothing to rely on, a score just above the threshold, or a lost channel."""
    n_sources = len({context.parent.document_id for context in contexts})
    is_clear = suitability.best is not None and suitability.threshold is not None and suitability.best >= CLEAR_FACTOR * suitability.threshold
    reasons = [suitability.reason, f"{n_sources} distinct {'source' if n_sources == 1 else 'sources'}"]
    reasons += [f"linked: {', '.join(seed.key for seed in candidates.linked_seeds[:3])}"] if candidates.linked_seeds else []
    reasons += [f"channel {channel} failed" for channel in candidates.failed]
    if suitability.refused or candidates.failed or not contexts:
        return Confidence(level="low", reasons=reasons)
    if is_clear and (n_sources >= 2 or candidates.linked_seeds):
        return Confidence(level="high", reasons=reasons)
    return Confidence(level="medium" if is_clear or suitability.best is None else "low", reasons=reasons)
