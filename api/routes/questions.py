"""Questions."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from api.access import Caller, Use
from api.streaming import EVENTS, MEDIA_TYPE, answer_stream
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse, untold

router = APIRouter(tags=["questions"])


@router.post("/search", operation_id="search")
async def search(wanted: SearchRequest, use: Use, caller: Caller) -> SearchResponse:
    """Ranked passages, without an answer."""
    return await use.search(caller, wanted)


STREAMED = {"schema": {"type": "string", "description": EVENTS}}


@router.post("/query", operation_id="query", response_model=QueryResponse, responses={200: {"content": {MEDIA_TYPE: STREAMED}}})
async def query(wanted: QueryRequest, use: Use, caller: Caller, request: Request) -> QueryResponse | StreamingResponse:
    """An answer with its citations, or a refusal (200, `refused: true`); with `stream` as server-sent events."""
    return answer_stream(request, lambda tell: use.query(caller, wanted, tell)) if wanted.stream else await use.query(caller, wanted, untold)
