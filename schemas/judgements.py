"""What people say of passages. A judgement points at a place in a document, never at a chunk: each generation maps it to its own chunks."""

from __future__ import annotations

from typing import Annotated, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.values import Value

Grade = Annotated[int, Field(ge=0, le=3, description="0 does not help, 1 a little, 2 well, 3 is the answer")]
MAX_QUOTE_CHARS = 4_000
"""Characters of a quote at most; its span ends with it."""


class QuotedPassage(Value):
    """A place in a revision of a document, with what stood there."""

    document_id: UUID
    external_id: str | None = None
    revision: int = 0
    char_start: int = Field(ge=0)
    char_end: int = Field(ge=0)
    quote: str = Field(max_length=MAX_QUOTE_CHARS)


class GradedPassage(QuotedPassage):
    grade: Grade


class FeedbackRequest(BaseModel):
    """Of a question that was asked (`run_id`), or of any (`query`)."""

    model_config = ConfigDict(extra="forbid")

    run_id: UUID | None = None
    query: str | None = Field(None, min_length=1, max_length=8000)
    useful: bool | None = None
    chunk_ids: list[UUID] = Field(default=[], max_length=100, description="passages that are meant: graded 1, or 0 where `useful` is false")
    grades: dict[UUID, Grade] = Field(default={}, max_length=100, description="chunk id → 0 to 3")
    corrected_answer: str | None = Field(None, max_length=20_000)
    note: str | None = Field(None, max_length=20_000)

    @model_validator(mode="after")
    def check_not_empty(self) -> Self:
        if self.run_id is None and self.query is None:
            raise ValueError("run_id or query must be given")
        if self.useful is None and not (self.chunk_ids or self.grades or self.corrected_answer or self.note):
            raise ValueError("one of useful, chunk_ids, grades, corrected_answer and note must be given")
        return self

    def list_grades(self) -> dict[UUID, int]:
        """Chunk id → grade; one that is only named gets what `useful` says."""
        default_grades = dict.fromkeys(self.chunk_ids, 0 if self.useful is False else 1)
        return {**default_grades, **self.grades}


class FeedbackReceipt(BaseModel):
    """The event is durable in the log."""

    status: str = "accepted"
    feedback_id: UUID
    judgements: int = Field(description="passages that were judged")
