"""Search, queries and feedback on answers."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from api.operations import OperationRoute, operation
from api.services import Caller, ServicesDep
from api.sse import EVENTS_DESCRIPTION, MEDIA_TYPE, answer_events, stream_events
from schemas.judgements import FeedbackReceipt, FeedbackRequest
from schemas.questions import (
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
    ignore_progress,
)

router = APIRouter(route_class=OperationRoute)


@router.post("/search", tags=["questions"], operation_id="search")
@operation(
    "reader",
    problems="404 NOT_FOUND NO_SUCH_GENERATION RUN_ERASED 413 TOO_LARGE 422 FIXED_SETTING "
    "INVALID_OVERRIDE UNKNOWN_PROFILE",
)
async def search(body: SearchRequest, services: ServicesDep, caller: Caller) -> SearchResponse:
    """Return ranked passages, without an answer."""
    return await services.search(caller, body)


STREAM_SCHEMA = {"schema": {"type": "string", "description": EVENTS_DESCRIPTION}}


@router.post(
    "/query",
    tags=["questions"],
    operation_id="query",
    response_model=QueryResponse,
    responses={200: {"content": {MEDIA_TYPE: STREAM_SCHEMA}}},
)
@operation(
    "reader",
    problems="404 NOT_FOUND NO_SUCH_GENERATION RUN_ERASED 413 TOO_LARGE 422 FIXED_SETTING "
    "INVALID_OVERRIDE UNKNOWN_PROFILE",
)
async def query(
    body: QueryRequest, services: ServicesDep, caller: Caller, request: Request
) -> QueryResponse | StreamingResponse:
    """Return an answer with citations, or a refusal (200, `refused: true`).

    With `stream`, responds with server-sent events.
    """
    if not body.stream:
        return await services.query(caller, body, ignore_progress)
    return stream_events(
        answer_events(request, lambda on_progress: services.query(caller, body, on_progress))
    )


@router.post("/feedback", tags=["feedback"], status_code=202, operation_id="give_feedback")
@operation("reader", problems="404 NOT_FOUND")
async def give_feedback(
    body: FeedbackRequest, services: ServicesDep, caller: Caller
) -> FeedbackReceipt:
    """Store feedback as judgements of passages, by document, revision, position and quote.

    Responds once the event is durable in the log.
    """
    return await services.record_feedback(caller, body)
