"""A question as it would go, without anybody hearing of it: for comparing one index with another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.expand import at_most_per_document
from retrieval.looked import Asked, Looked
from schemas.questions import Trace


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage that was found: a parent chunk."""

    parent_id: UUID
    document_id: UUID
    external_id: str | None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`ranked` is best first, before refusal and trimming."""

    generation: str
    ranked: Sequence[Ranked]
    refused: bool
    trace: Trace


def ranked(asked: Asked, looked: Looked) -> list[Ranked]:
    best = at_most_per_document(looked.ranking.parents, asked.profile.fusion.per_document)[: asked.request.k]
    return [Ranked(parent.parent_id, parent.document_id, parent.best.chunk.external_id) for parent in best]
