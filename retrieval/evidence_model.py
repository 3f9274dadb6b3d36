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
    answer. Probabilities below `refuse_below` refuse; those of `medium_from` and `high_from` begin
    a level of confidence.
    """

    selection: Mapping[str, float]
    confidence: Mapping[str, float]
    intercept: float
    refuse_below: float
    medium_from: float
    high_from: float


EVIDENCE_MODEL = EvidenceModel(
    **json.loads((files("retrieval") / "evidence_model.json").read_text(encoding="utf-8"))
)
