"""Expand matched child chunks to the parent passages that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from retrieval.fusion import FusedCandidate


@dataclass(frozen=True, slots=True)
class RankedParent:
    """A parent, scored by its best child. `duplicates` are near-equal parents folded under it, best
    first.
    """

    parent_id: UUID
    document_id: UUID
    score: float
    best: FusedCandidate
    children_count: int
    rerank_score: float | None = None
    score_parts: Mapping[str, float] = field(default_factory=dict)
    duplicates: tuple[RankedParent, ...] = ()

    @property
    def sort_key(self) -> tuple[float, UUID]:
        return (-self.score, self.parent_id)

    def duplicate_documents(self) -> list[UUID]:
        """List the other documents among the folded passages, best first."""
        return list(
            dict.fromkeys(
                other.document_id
                for other in self.duplicates
                if other.document_id != self.document_id
            )
        )


def expand_to_parents(
    candidates: Sequence[FusedCandidate], aggregation: Literal["max", "sum"]
) -> list[RankedParent]:
    """Return parents, best first.

    `max` takes the best child's score; `sum` adds what each child scores above the lowest
    candidate.
    """
    lowest_score = min((candidate.score for candidate in candidates), default=0.0)
    families: dict[UUID, list[FusedCandidate]] = {}
    for candidate in candidates:
        families.setdefault(candidate.chunk.parent_id, []).append(candidate)
    return sorted(
        (_build_parent(children, aggregation, lowest_score) for children in families.values()),
        key=lambda parent: parent.sort_key,
    )


def _build_parent(
    children: Sequence[FusedCandidate], aggregation: Literal["max", "sum"], lowest_score: float
) -> RankedParent:
    best = max(children, key=lambda child: (child.score, child.chunk.chunk_id))
    score = (
        best.score
        if aggregation == "max"
        else sum(child.score - lowest_score for child in children)
    )
    return RankedParent(
        best.chunk.parent_id,
        best.chunk.document_id,
        score,
        best,
        len(children),
        score_parts={**best.score_parts, "fused": score},
    )


def limit_per_document(parents: Sequence[RankedParent], limit: int | None) -> list[RankedParent]:
    if limit is None:
        return list(parents)
    count_by_document: dict[UUID, int] = {}
    limited = []
    for parent in parents:
        count_by_document[parent.document_id] = count_by_document.get(parent.document_id, 0) + 1
        if count_by_document[parent.document_id] <= limit:
            limited.append(parent)
    return limited


def replace_score(
    parent: RankedParent, score: float, rerank: float | None, parts: Mapping[str, float]
) -> RankedParent:
    return replace(
        parent, score=score, rerank_score=rerank, score_parts={**parent.score_parts, **parts}
    )
