"""Questions."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from api.access import Use
from api.streaming import answer_stream
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse

router = APIRouter(tags=["questions"])


@router.post("/search", operation_id="search")
async def search(wanted: SearchRequest, use: Use) -> SearchResponse:
    """Ranked passages, without an answer."""
    return await use.search(wanted)


@router.post("/query", operation_id="query", response_model=QueryResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def query(wanted: QueryRequest, use: Use) -> QueryResponse | StreamingResponse:
    """An answer with its citations, or a refusal (200, `refused: true`). With `stream`, server-sent events: `started`, then `answer` or `error`."""
    return answer_stream(use.query(wanted)) if wanted.stream else await use.query(wanted)
