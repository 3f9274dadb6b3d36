"""What people say of answers: topic `feedback`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.judgements import GradedPassage


class FeedbackGiven(EventData, name="feedback.given", topic="feedback"):
    """Somebody said whether an answer or a passage helps."""

    feedback_id: UUID
    tenant: str
    given_at: datetime
    run_id: UUID | None = None
    query: str | None = Field(None, description="as it was asked, where the run is known")
    useful: bool | None = None
    judgements: list[GradedPassage] = []
    corrected_answer: str | None = None
    note: str | None = None


EVENTS: tuple[type[EventData], ...] = (FeedbackGiven,)
