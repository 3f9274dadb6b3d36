"""The ranking of a query: its parents, with everything that led to their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retrieval.channels import ChannelCandidates
from retrieval.fusion import Fusion
from retrieval.parent_expansion import RankedParent
from retrieval.reranking import RerankResult


@dataclass(frozen=True, slots=True)
class Ranking:
    """Parents, best first, near-duplicates folded. `reranked` is None without a reranker."""

    parents: tuple[RankedParent, ...]
    candidates: ChannelCandidates
    fusion: Fusion
    reranked: RerankResult | None

    @property
    def idf(self) -> Mapping[str, Mapping[str, float]]:
        return self.candidates.lexical.idf if self.candidates.lexical else {}

    @property
    def is_complete(self) -> bool:
        """True when every channel and the reranker succeeded, token states included."""
        return not self.candidates.failed and (
            self.reranked is None
            or (self.reranked.is_reranked and not self.reranked.unread_states_count)
        )

    @property
    def notes(self) -> list[str]:
        return list(self.reranked.notes) if self.reranked else []

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number that entered a score, except those of single candidates."""
        rerank_numbers = dict(self.reranked.numbers) if self.reranked else {}
        return {
            "fusion": dict(self.fusion.numbers),
            "idf": {name: dict(weights) for name, weights in self.idf.items()},
            "rerank": rerank_numbers,
        }
