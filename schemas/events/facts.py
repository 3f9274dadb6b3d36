"""Facts stated by people and applications, and the decisions on them: topic `feedback`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.topics import FEEDBACK


class FactProposed(EventData, name="fact.proposed", topic=FEEDBACK):
    """A fact was stated. Answers use it once it is approved."""

    fact_id: UUID
    tenant: str
    subject: str
    predicate: str
    object: str
    certainty: float = Field(description="Certainty when it was stated.")
    half_life_days: float | None = None
    """Days in which the certainty halves. Null: as the profile says."""
    source: str | None = Field(None, description="Where the fact comes from.")
    readers: list[str] | None = None
    """Names that may read the fact. Null: the whole tenant."""
    stated_by: str = Field(description="Id of the caller.")
    stated_at: datetime
    expires_at: datetime | None = None
    replaces: UUID | None = None
    """The fact that this one replaces once it is approved."""


class FactApproved(EventData, name="fact.approved", topic=FEEDBACK):
    """A fact was approved: answers may use it."""

    fact_id: UUID
    tenant: str
    decided_by: str = Field(description="Id of the caller.")
    decided_at: datetime


class FactRejected(EventData, name="fact.rejected", topic=FEEDBACK):
    """A fact was rejected: answers do not use it, even if it was approved before."""

    fact_id: UUID
    tenant: str
    decided_by: str = Field(description="Id of the caller.")
    decided_at: datetime
    reason: str | None = Field(None, description="Free text.")


class FactRetracted(EventData, name="fact.retracted", topic=FEEDBACK):
    """The erasure of a fact was requested: its text is removed.

    Where events are encrypted, the erasure also destroys their key.
    """

    fact_id: UUID
    tenant: str
