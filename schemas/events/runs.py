"""Questions, answers and feedback: topics `queries` and `feedback`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.judgements import GradedPassage
from schemas.run_records import RunRecord
from schemas.topics import FEEDBACK, QUERIES


class QueryReceived(EventData, name="query.received", topic=QUERIES):
    """A question was received."""

    run_id: UUID
    tenant: str
    kind: str = Field(description="`query` or `search`.")
    request: dict[str, Any] = Field(description="The request as received.")
    received_at: datetime
    requested_by: str | None = Field(None, description="Id of the caller.")


class QueryAnswered(EventData, name="query.answered", topic=QUERIES):
    """A question was answered."""

    run_id: UUID
    tenant: str
    generation: str = Field(description="Generation that was searched.")
    answered_at: datetime
    response: dict[str, Any] = Field(description="The response as sent.")
    candidates: list[dict[str, Any]] = Field(
        default=[],
        description=(
            "Candidates of every channel: chunk id, rank, score, and the scores of later steps."
        ),
    )
    numbers: dict[str, Any] = Field(
        default={},
        description="Numbers that entered the scores: means, deviations, idf values, threshold.",
    )
    run_record: RunRecord | None = Field(
        None,
        description=(
            "Further inputs that a rerun needs: profile, language, and passages by the hash of "
            "their text."
        ),
    )


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
    candidate_rejected: bool = Field(
        False, description="The question is no candidate for golden questions any more."
    )


EVENTS: tuple[type[EventData], ...] = (QueryReceived, QueryAnswered, FeedbackGiven)
