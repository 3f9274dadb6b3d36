"""Expansion: children are found, parents are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from retrieval.fuse import Fused


@dataclass(frozen=True, slots=True)
class RankedParent:
    """A parent by its best child. `duplicates` are parents with a near-equal best passage, best first, folded under this one."""

    parent_id: UUID
    document_id: UUID
    score: float
    best: Fused
    children: int
    rerank: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    duplicates: tuple[RankedParent, ...] = ()

    @property
    def order(self) -> tuple[float, UUID]:
        return (-self.score, self.parent_id)

    def duplicate_documents(self) -> list[UUID]:
        """Documents of the folded passages, without this one's own, best first."""
        return list(dict.fromkeys(other.document_id for other in self.duplicates if other.document_id != self.document_id))


def expand(candidates: Sequence[Fused], how: Literal["max", "sum"]) -> list[RankedParent]:
    """Parents, best first. `max` takes the best child's score; `sum` adds what each child has above the least candidate."""
    least = min((candidate.score for candidate in candidates), default=0.0)
    families: dict[UUID, list[Fused]] = {}
    for candidate in candidates:
        families.setdefault(candidate.chunk.parent_id, []).append(candidate)
    return sorted((_parent(children, how, least) for children in families.values()), key=lambda parent: parent.order)


def _parent(children: Sequence[Fused], how: Literal["max", "sum"], least: float) -> RankedParent:
    best = max(children, key=lambda child: (child.score, child.chunk.chunk_id))
    score = best.score if how == "max" else sum(child.score - least for child in children)
    return RankedParent(best.chunk.parent_id, best.chunk.document_id, score, best, len(children), parts={**best.parts, "fused": score})


def at_most_per_document(parents: Sequence[RankedParent], limit: int | None) -> list[RankedParent]:
    if limit is None:
        return list(parents)
    seen: dict[UUID, int] = {}
    kept = []
    for parent in parents:
        seen[parent.document_id] = seen.get(parent.document_id, 0) + 1
        if seen[parent.document_id] <= limit:
            kept.append(parent)
    return kept


def rescored(parent: RankedParent, score: float, rerank: float | None, parts: Mapping[str, float]) -> RankedParent:
    return replace(parent, score=score, rerank=rerank, parts={**parent.parts, **parts})
