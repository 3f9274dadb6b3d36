"""Exams that a corpus sits, and the thresholds that are learned from them.

Neither holds text of a document: erasing one leaves only its id behind.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.models import Request
from schemas.values import Value

ExamKind = Literal["definition", "table_cell", "date", "amount"]
CalibrationBasis = Literal["judgements", "exam", "uncalibrated"]
MAX_EXAM_QUESTIONS = 1000


class ExamRequest(Request):
    """Make questions from the documents and run them."""

    generation: str | None = None
    """Generation to examine. The live one if omitted."""
    questions: int = Field(200, ge=2, le=MAX_EXAM_QUESTIONS)
    """Maximum number of questions. Half of them are asked without their document."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Selects the questions. Equal seeds give equal questions over equal documents."""
    profile: str = Field("default", description="Retrieval profile.")


class ShareInterval(Value):
    """A share with its interval of 95 % (Wilson, 1927). Null of none."""

    value: float | None
    low: float | None
    high: float | None
    n: int


class RankedQuestion(Value):
    """Rank and refusal of a question whose passage is known."""

    rank: int | None = Field(None, description="Rank of the passage. Null if it was not found.")
    refused: bool
    probability: float | None = None
    """Estimated probability of a right answer; null without an estimate."""
    lacks_terms: bool = False
    """Refused because the documents lack a code or name of the question."""
    shares: list[float] = Field([], max_length=100)
    """Scores of the first passages, as shares of the best, in order."""

    @property
    def passage_share(self) -> float | None:
        """Return the share of the right passage; None if it is not among the first."""
        if self.rank is None or self.rank > len(self.shares):
            return None
        return self.shares[self.rank - 1]


class ExamItem(RankedQuestion):
    """A question of an exam and its result. The question is made again from the span."""

    kind: ExamKind = Field(description="What was left out of the passage.")
    document_id: UUID
    char_start: int = Field(ge=0, description="Start of the passage in the document's Markdown.")
    char_end: int = Field(ge=0, description="End of the passage.")
    hidden: bool = Field(description="The document was left out, so a refusal is right.")


class Exam(Value):
    """A completed exam."""

    exam_id: UUID
    tenant: str
    generation: str
    profile: str
    seed: int
    scores: str = Field(description="Fingerprint of the models behind the scores.")
    completed_at: datetime
    items: list[ExamItem]
    failed: int = Field(0, description="Questions that failed.")


DefaultReason = Literal["too_few_questions", "interval", "no_gain"]
"""Why the default threshold of refusal stays: nothing was learned; a stricter one may refuse more
answerable questions than allowed; it is not shown to refuse more of the others."""


class CalibrationRequest(ExamRequest):
    """Learn thresholds from judgements where there are enough, else from an exam."""

    coverage: float = Field(0.9, ge=0.5, le=0.99)
    """Share of the questions whose right passage must survive trimming."""
    false_refusals: float = Field(0.05, ge=0, le=0.5)
    """Share of the answerable questions that may be refused."""
    min_questions: int = Field(30, ge=10, le=MAX_EXAM_QUESTIONS)
    """Minimum number of answerable questions to learn from."""
    max_confidence: float = Field(0.25, ge=0, le=1)
    """Upper limit of a refusal threshold from an exam, whose questions share more words with their
    passages than those of people.
    """
    max_trim: float = Field(0.8, ge=0, le=1)
    """Upper limit of a trimming threshold from an exam, for the same reason."""


class Calibration(Value):
    """Thresholds of one generation, for one tenant's documents and one set of models."""

    tenant: str
    generation: str
    scores: str = Field(description="Fingerprint of the models behind the scores.")
    basis: CalibrationBasis
    """Source of the thresholds. `uncalibrated`: too few questions, so the defaults."""
    questions: int = Field(description="Answerable questions that it was learned from.")
    coverage: float = Field(description="Share of right passages that trimming keeps.")
    min_confidence: float | None = None
    """Probability below which a question is refused. Null: the default."""
    trim: float | None = None
    """Share of the best score below which passages are omitted. Null: the default."""
    exam_id: UUID | None = Field(None, description="The exam that it was learned from.")
