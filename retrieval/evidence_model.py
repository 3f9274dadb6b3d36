"""Load the learned weights of evidence and confidence.

`evidence_model.json` belongs to the token states of the local embedder. `benchmarks.evidence_model`
replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class EvidenceModel:
    """`selection` weighs the features of a sentence; `confidence`, with `intercept`, those of an
    answer. Probabilities below `refuse_below` refuse, and below `refuse_foreign_below` if the best
    sentence is in another language than the question; those of `medium_from` and `high_from` begin
    a level of confidence. Questions in its language are refused as far from the documents when the
    passage of the best sentence has a rerank score, above the background, below `min_rerank_score`,
    and as gibberish when no word of theirs is in the documents and they have more tokens per letter
    than `max_tokens_per_letter`.
    """

    selection: Mapping[str, float]
    confidence: Mapping[str, float]
    intercept: float
    refuse_below: float
    refuse_foreign_below: float
    medium_from: float
    high_from: float
    min_rerank_score: float
    max_tokens_per_letter: float


EVIDENCE_MODEL = EvidenceModel(
    **json.loads((files("retrieval") / "evidence_model.json").read_text(encoding="utf-8"))
)
