"""Feedback on answers: topic `feedback`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.judgements import GradedPassage
from schemas.topics import FEEDBACK


class FeedbackGiven(EventData, name="feedback.given", topic=FEEDBACK):
    """A user judged an answer or passages."""

    feedback_id: UUID
    tenant: str
    given_at: datetime
    run_id: UUID | None = Field(None, description="The run that the feedback is about.")
    query: str | None = Field(None, description="The question. Taken from the run if one is given.")
    useful: bool | None = Field(None, description="Whether the answer was useful.")
    judgements: list[GradedPassage] = Field([], description="Judged passages with their grades.")
    corrected_answer: str | None = Field(
        None, description="The answer that should have been given."
    )
    note: str | None = Field(None, description="Free text.")


EVENTS: tuple[type[EventData], ...] = (FeedbackGiven,)
