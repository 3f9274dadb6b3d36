"""Results of a query that is run without publishing anything, for comparing generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.parent_expansion import limit_per_document
from retrieval.query_context import QueryContext, RetrievalResult
from schemas.questions import Trace


@dataclass(frozen=True, slots=True)
class DryRunPassage:
    parent_id: UUID
    document_id: UUID
    external_id: str | None


@dataclass(frozen=True, slots=True)
class DryRun:
    """Ranked passages (best first, before refusal and trimming) and the decision to refuse."""

    generation: str
    passages: Sequence[DryRunPassage]
    refused: bool
    trace: Trace


def list_ranked_passages(
    query_context: QueryContext, result: RetrievalResult
) -> list[DryRunPassage]:
    best = limit_per_document(result.ranking.parents, query_context.profile.fusion.per_document)[
        : query_context.request.k
    ]
    return [
        DryRunPassage(parent.parent_id, parent.document_id, parent.best.chunk.external_id)
        for parent in best
    ]
