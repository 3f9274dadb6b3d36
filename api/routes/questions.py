"""Questions."""

from __future__ import annotations

from fastapi import APIRouter

from api.access import Use
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse

router = APIRouter(tags=["questions"])


@router.post("/search", operation_id="search")
async def search(wanted: SearchRequest, use: Use) -> SearchResponse:
    """Ranked passages, without an answer."""
    return await use.search(wanted)


@router.post("/query", operation_id="query")
async def query(wanted: QueryRequest, use: Use) -> QueryResponse:
    """An answer with its citations, or a refusal (200, `refused: true`)."""
    return await use.query(wanted)
