"""Facts that people and applications state, such as "The contact for plant 3 is Ana".

A fact never changes: an update is another fact that replaces it once it is approved.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from schemas.models import Described, Request
from schemas.timestamps import Timestamp
from schemas.values import ReaderName, Value

FactStatus = Literal["proposed", "approved", "rejected", "replaced"]
Decision = Literal["approved", "rejected"]
MAX_PART = 1000
MAX_HALF_LIFE_DAYS = 36_500.0
Part = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_PART)]


class FactRequest(Request):
    """A fact to propose. It is used in answers once it is approved."""

    subject: Part = Field(description="Such as `The contact for plant 3`.")
    predicate: Part = Field(description="Such as `is`.")
    object: Part = Field(description="Such as `Ana`.")
    certainty: float = Field(1.0, gt=0, le=1)
    """Certainty when it was stated. It decays with time."""
    half_life_days: float | None = Field(None, ge=1, le=MAX_HALF_LIFE_DAYS)
    """Days in which the certainty halves. Null: as the profile says."""
    source: str | None = Field(None, min_length=1, max_length=MAX_PART)
    """Where the fact comes from."""
    expires_at: Timestamp | None = Field(None, description="From then on the fact is not used.")
    readers: list[ReaderName] | None = Field(None, max_length=100)
    """Names such as `user:ana` that may read the fact. Null: the whole tenant."""
    replaces: UUID | None = None
    """Id of the fact that this one replaces once it is approved."""


class FactRejection(Request):
    reason: str | None = Field(None, min_length=1, max_length=MAX_PART, description="Free text.")


class FactReceipt(Described):
    """The event is durable in the log."""

    status: Literal["applied", "accepted"] = "accepted"
    """`accepted`: the event is on the log and not yet in the tables."""
    fact_id: UUID = Field(description="Id of the fact.")
    duplicate: bool = False
    """True if the same fact exists already; nothing was published."""


class Fact(Value):
    """A fact that was stated."""

    fact_id: UUID = Field(description="Id of the fact.")
    subject: str = Field(description="Whom or what it is about.")
    predicate: str = Field(description="The relation.")
    object: str = Field(description="The value.")
    certainty: float = Field(description="Certainty when it was stated.")
    half_life_days: float | None = None
    """Days in which the certainty halves. Null: as the profile says."""
    source: str | None = Field(None, description="Where the fact comes from.")
    readers: list[str] | None = None
    """Names that may read the fact. Null: the whole tenant."""
    status: FactStatus
    """`proposed`, `approved`, `rejected`, or `replaced` by another fact."""
    stated_by: str = Field(description="Id of the caller that stated it.")
    stated_at: datetime = Field(description="When it was stated.")
    expires_at: datetime | None = Field(None, description="When it ends.")
    replaces: UUID | None = Field(None, description="The fact that it replaces.")
    decided_by: str | None = Field(None, description="Id of the caller that decided.")
    decided_at: datetime | None = Field(None, description="When it was approved or rejected.")
    reason: str | None = Field(None, description="Why it was rejected.")

    @property
    def statement(self) -> str:
        return f"{self.subject} {self.predicate} {self.object}"


class FactCitation(Value):
    """A fact that an answer rests on, marked `[F1]` in its text."""

    n: int = Field(description="Number of the fact in the answer: 1 for `[F1]`.")
    fact_id: UUID = Field(description="Id of the fact.")
    statement: str = Field(description="The fact as a sentence.")
    source: str | None = Field(None, description="Where the fact comes from.")
    stated_by: str = Field(description="Id of the caller that stated it.")
    stated_at: datetime = Field(description="When it was stated.")
    approved_by: str | None = Field(None, description="Id of the caller that approved it.")
    certainty: float = Field(description="Certainty at the time of the answer, after its decay.")


def decay_certainty(certainty: float, age_days: float, half_life_days: float) -> float:
    """Halve the certainty with every half-life of age."""
    return float(certainty * 0.5 ** (max(age_days, 0.0) / half_life_days))


class FactsProfile(Value):
    """Facts that people stated and approved, beside the documents."""

    enabled: bool = Field(True, description="Whether answers use facts.")
    k: int = Field(3, ge=1, le=20, description="Maximum number of facts in an answer.")
    half_life_days: float = Field(365.0, ge=1, le=MAX_HALF_LIFE_DAYS)
    """Days in which the certainty of a fact halves, unless the fact has its own."""
