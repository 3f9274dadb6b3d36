"""Feedback and relevance judgements.

A judgement refers to a range of a document, not to a chunk, so that every generation can map it to
its own chunks.
"""

from __future__ import annotations

from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, model_validator

from schemas.models import Described, Request
from schemas.values import Value

MAX_GRADE = 3
"""Grade of a passage that contains the answer."""
Grade = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_GRADE,
        description="Relevance: 0 irrelevant, 1 marginal, 2 relevant, 3 contains the answer.",
    ),
]
MAX_QUOTE_CHARS = 4_000
"""Longer quotes are cut, together with their span."""


class QuotedPassage(Value):
    """A passage in a revision of a document, with its text at that time."""

    document_id: UUID
    external_id: str | None = None
    revision: int = 0
    char_start: int = Field(ge=0)
    char_end: int = Field(ge=0)
    quote: str = Field(max_length=MAX_QUOTE_CHARS)


class GradedPassage(QuotedPassage):
    """A passage with a relevance grade."""

    grade: Grade


class FeedbackRequest(Request):
    """Feedback on an answer (`run_id`) or on any question (`query`)."""

    run_id: UUID | None = Field(None, description="The run that the feedback is about.")
    query: str | None = Field(None, min_length=1, max_length=8000)
    """The question, if it was not a run."""
    useful: bool | None = Field(None, description="Whether the answer was useful.")
    chunk_ids: list[UUID] = Field(default=[], max_length=100)
    """Passages that the feedback refers to. Their grade is 1, or 0 if `useful` is false."""
    grades: dict[UUID, Grade] = Field(default={}, max_length=100)
    """Relevance grades from 0 to 3 by chunk id."""
    corrected_answer: str | None = Field(None, max_length=20_000)
    """The answer that should have been given."""
    note: str | None = Field(None, max_length=20_000, description="Free text.")
    candidate_rejected: bool = False
    """Reject the question as a golden question. Requires the role `admin`."""

    @model_validator(mode="after")
    def check_not_empty(self) -> Self:
        if self.run_id is None and self.query is None:
            raise ValueError("set run_id or query")
        if self.useful is None and not (
            self.chunk_ids
            or self.grades
            or self.corrected_answer
            or self.note
            or self.candidate_rejected
        ):
            raise ValueError(
                "set at least one of useful, chunk_ids, grades, corrected_answer, note and "
                "candidate_rejected"
            )
        return self

    def list_grades(self) -> dict[UUID, int]:
        """Return the grade of each chunk id. Ids without a grade get the grade that `useful`
        implies.
        """
        default_grades = dict.fromkeys(self.chunk_ids, 0 if self.useful is False else 1)
        return {**default_grades, **self.grades}


class FeedbackReceipt(Described):
    """The feedback was accepted and is durable."""

    status: str = Field("accepted", description="Always `accepted`.")
    feedback_id: UUID = Field(description="Id of the feedback.")
    judgements: int = Field(description="Number of judged passages.")
