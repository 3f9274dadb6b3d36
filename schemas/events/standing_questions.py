"""Saved questions: topic `feedback`; and their changed answers: topic `answers`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.standing_questions import AnswerChangeData, StandingQuestionRequest
from schemas.topics import ANSWERS, FEEDBACK


class QuestionSaved(EventData, name="question.saved", topic=FEEDBACK):
    """A question was saved: it is asked again when a document could change its answer."""

    question_id: UUID
    tenant: str
    asked_by: str = Field(description="Id of the caller.")
    readers: list[str] | None = None
    """Readers whose documents the caller may read. Null: all documents of the tenant."""
    request: StandingQuestionRequest = Field(description="The question.")
    saved_at: datetime


class QuestionDeleted(EventData, name="question.deleted", topic=FEEDBACK):
    """A saved question was deleted and is no longer asked."""

    question_id: UUID
    tenant: str


class AnswerChanged(EventData, AnswerChangeData, name="answer.changed", topic=ANSWERS):
    """The answer of a saved question changed.

    Emitted when the question is asked again, and never by a replay or a rebuild.
    """
