"""Feedback on answers."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import Caller, ServicesDep
from schemas.judgements import FeedbackReceipt, FeedbackRequest

router = APIRouter(tags=["feedback"])


@router.post("/feedback", status_code=202, operation_id="give_feedback")
async def give_feedback(
    body: FeedbackRequest, services: ServicesDep, caller: Caller
) -> FeedbackReceipt:
    """Store feedback as judgements of passages, by document, revision, position and quote.

    Responds once the event is durable in the log.
    """
    return await services.record_feedback(caller, body)
