"""How far an answer can be relied on, in words that can be checked."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.channels import Found
from retrieval.pack import Context
from retrieval.refuse import Suitability
from schemas.questions import Confidence

CLEAR = 1.2
"""Times the threshold from which on the best score is clear."""


def confidence(suitability: Suitability, contexts: Sequence[Context], found: Found) -> Confidence:
    """High: a clear best score and two sources or a linked name. Low: nothing to rely on, a score just above the threshold, or a lost channel."""
    sources = len({context.parent.document_id for context in contexts})
    clear = suitability.best is not None and suitability.threshold is not None and suitability.best >= CLEAR * suitability.threshold
    reasons = [suitability.reason, f"{sources} distinct {'source' if sources == 1 else 'sources'}"]
    reasons += [f"linked: {', '.join(seed.key for seed in found.linked[:3])}"] if found.linked else []
    reasons += [f"channel {channel} failed" for channel in found.failed]
    if suitability.refused or found.failed or not contexts:
        return Confidence(level="low", reasons=reasons)
    if clear and (sources >= 2 or found.linked):
        return Confidence(level="high", reasons=reasons)
    return Confidence(level="medium" if clear or suitability.best is None else "low", reasons=reasons)
