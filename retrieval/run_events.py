"""Build the events that a query publishes: received, and answered with everything that entered the
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.fusion import FusedCandidate
from retrieval.parent_expansion import RankedParent
from retrieval.passage_codec import hash_text
from retrieval.ranking import Ranking
from schemas.events import EventData, QueryAnswered, QueryReceived
from schemas.principals import Principal
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse
from schemas.run_records import RunRecord

# Must return at once. Implementations buffer, so that an unreachable log never fails a query.
PublishRunEvent = Callable[[EventData], None]


def discard_event(event: EventData) -> None:
    """Publish nothing."""


def build_query_received(
    run_id: UUID, caller: Principal, request: SearchRequest, received_at: datetime
) -> QueryReceived:
    kind = "query" if isinstance(request, QueryRequest) else "search"
    return QueryReceived(
        run_id=run_id,
        tenant=caller.tenant,
        kind=kind,
        request=request.model_dump(mode="json"),
        received_at=received_at,
        asked_by=caller.id,
    )


def build_query_answered(
    tenant: str,
    response: SearchResponse | QueryResponse,
    ranking: Ranking,
    numbers: dict[str, Any],
    answered_at: datetime,
    basis: RunRecord | None = None,
) -> QueryAnswered:
    """Build the event. `ranking` provides the candidates of all channels with all their numbers.

    A rerun starts from these candidates at fusion.
    """
    return QueryAnswered(
        run_id=response.run_id,
        tenant=tenant,
        generation=response.generation,
        answered_at=answered_at,
        response=response.model_dump(mode="json"),
        candidates=_list_candidates(ranking),
        numbers={**ranking.numbers, **numbers},
        basis=basis,
    )


def _list_candidates(ranking: Ranking) -> list[dict[str, Any]]:
    parent_by_best_chunk: dict[UUID, RankedParent] = {}
    for parent in ranking.parents:
        parent_by_best_chunk.update(
            {
                ranked_parent.best.chunk.chunk_id: ranked_parent
                for ranked_parent in (parent, *parent.duplicates)
            }
        )
    return [
        _format_candidate(fused, parent_by_best_chunk.get(fused.chunk.chunk_id))
        for fused in ranking.fusion.candidates
    ]


def _format_candidate(fused: FusedCandidate, parent: RankedParent | None) -> dict[str, Any]:
    chunk = fused.chunk
    candidate: dict[str, Any] = {
        "chunk_id": str(chunk.chunk_id),
        "parent_id": str(chunk.parent_id),
        "document_id": str(chunk.document_id),
        "channels": {
            name: {"rank": channel_place.rank, "score": channel_place.score}
            for name, channel_place in fused.channel_places.items()
        },
        "text_sha256": hash_text(chunk.text),
        "parts": dict(fused.score_parts),
        "fused": fused.score,
    }
    if parent is not None:
        candidate |= {"parent_score": parent.score, "rerank_score": parent.rerank_score}
    return candidate
