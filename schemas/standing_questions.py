"""Saved questions, which are asked again when a document could change the answer."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.models import Request
from schemas.questions import Filters, ProfileName, QueryRequest, QueryText
from schemas.run_records import ChangeCause, ChangeReason, ComparedRun
from schemas.values import Language, Value

MAX_HOOK_URL_LENGTH = 2_048
AnswerPart = Literal["answer", "citations", "refusal"]
DeliveryState = Literal["pending", "delivered", "failed"]


class StandingQuestionRequest(Request):
    """A question to save."""

    query: QueryText = Field(description="The question.")
    profile: ProfileName | None = None
    """Name of the workflow profile. If omitted, as for a question that names none."""
    filters: Filters = Field(Filters(), description="Conditions that the documents must match.")
    language: Language | None = None
    """Language of the question as a BCP 47 tag. Detected if omitted."""
    hook_url: str | None = Field(None, min_length=1, max_length=MAX_HOOK_URL_LENGTH)
    """Address that receives a signed POST for each changed answer. Public and https, unless
    `INGEST__URL_ALLOW` has its host.
    """

    def to_query(self) -> QueryRequest:
        given = {"profile": self.profile} if self.profile is not None else {}
        return QueryRequest(query=self.query, filters=self.filters, language=self.language, **given)


class StandingQuestionProblem(Value):
    """Why a question could not be asked."""

    code: str = Field(description="Code of the error.")
    detail: str = Field(description="What happened.")
    remedy: str | None = Field(None, description="What to do.")


class StandingQuestion(Value):
    """A saved question with its last answer."""

    question_id: UUID
    asked_by: str = Field(description="Id of the caller that saved it, as which it is asked.")
    request: StandingQuestionRequest = Field(description="The question as saved.")
    saved_at: datetime
    answered_at: datetime | None = Field(None, description="When it was answered last.")
    changed_at: datetime | None = Field(None, description="When its answer changed last.")
    run_id: UUID | None = Field(None, description="Run of the last answer.")
    is_due: bool = Field(False, description="Whether it is about to be asked.")
    problem: StandingQuestionProblem | None = None
    """Why it could not be asked last. It is asked again when the next document could matter."""


class SavedQuestion(StandingQuestion):
    """A question that was just saved."""

    hook_secret: str | None = None
    """Verifies the web hook's signatures. Only this response has it."""


class AnswerChangeData(Value):
    """A changed answer. Its texts are those of the two runs."""

    change_id: UUID
    question_id: UUID
    tenant: str
    changed_at: datetime
    previous_run_id: UUID = Field(description="Run of the previous answer.")
    run_id: UUID = Field(description="Run of the new answer.")
    changes: list[AnswerPart] = Field(description="What differs.")
    causes: list[ChangeCause] = Field(description="Why, the most important cause first.")
    documents: list[UUID] = Field(description="Documents that were added, revised or removed.")


class AnswerChange(Value):
    """A changed answer and the state of its web hook."""

    change: AnswerChangeData
    delivery: DeliveryState | None = Field(description="Null without a web hook.")
    attempts: int = Field(description="Attempts to deliver it.")
    delivery_error: str | None = Field(description="How the last attempt failed.")


class HookedChange(AnswerChangeData):
    """The `data` of a web hook. The texts are null once they are erased."""

    question: str
    then: ComparedRun | None = Field(description="The previous answer.")
    now: ComparedRun | None = Field(description="The new answer.")
    reasons: list[ChangeReason] = Field(description="The causes, explained.")
