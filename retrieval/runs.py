"""What is published of a question: that it came, and all that went into its answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.expand import RankedParent
from retrieval.fuse import Fused
from retrieval.kept import text_hash
from retrieval.ranking import Ranking
from schemas.events import Event, QueryAnswered, QueryReceived
from schemas.principals import Principal
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse
from schemas.runs import Basis

Publish = Callable[[Event], None]
"""Takes a fact and returns at once: a bounded buffer, so that a log that is away never fails a question."""


def discard(event: Event) -> None:
    """For those who keep no record of questions."""


def received(run_id: UUID, caller: Principal, request: SearchRequest, at: datetime) -> QueryReceived:
    kind = "query" if isinstance(request, QueryRequest) else "search"
    return QueryReceived(run_id=run_id, tenant=caller.tenant, kind=kind, request=request.model_dump(mode="json"), received_at=at, asked_by=caller.id)


def answered(
    tenant: str, response: SearchResponse | QueryResponse, ranking: Ranking, numbers: dict[str, Any], at: datetime, basis: Basis | None = None
) -> QueryAnswered:
    """`candidates` are those of every channel with each of their numbers; from them the steps from fusion on can be run again."""
    return QueryAnswered(
        run_id=response.run_id,
        tenant=tenant,
        generation=response.generation,
        answered_at=at,
        response=response.model_dump(mode="json"),
        candidates=_candidates(ranking),
        numbers={**ranking.numbers, **numbers},
        basis=basis,
    )


def _candidates(ranking: Ranking) -> list[dict[str, Any]]:
    by_best: dict[UUID, RankedParent] = {}
    for parent in ranking.parents:
        by_best.update({item.best.chunk.chunk_id: item for item in (parent, *parent.duplicates)})
    return [_candidate(fused, by_best.get(fused.chunk.chunk_id)) for fused in ranking.fusion.candidates]


def _candidate(fused: Fused, parent: RankedParent | None) -> dict[str, Any]:
    chunk = fused.chunk
    candidate: dict[str, Any] = {
        "chunk_id": str(chunk.chunk_id),
        "parent_id": str(chunk.parent_id),
        "document_id": str(chunk.document_id),
        "channels": {name: {"rank": place.rank, "score": place.score} for name, place in fused.places.items()},
        "text_sha256": text_hash(chunk.text),
        "parts": dict(fused.parts),
        "fused": fused.score,
    }
    if parent is not None:
        candidate |= {"parent_score": parent.score, "rerank_score": parent.rerank}
    return candidate
