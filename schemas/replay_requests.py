"""What is asked of dead letters and replays."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.rate_limits import MAX_EVENTS_PER_S, MIN_EVENTS_PER_S
from schemas.timestamps import Timestamp

MAX_SELECTED_IDS = 10_000
EventsPerSecond = Annotated[float, Field(ge=MIN_EVENTS_PER_S, le=MAX_EVENTS_PER_S)]
"""Events."""


class DeadLetterSelection(BaseModel):
    """Open dead letters: by id, document, stage or code; all that are open where `all` says so."""

    model_config = ConfigDict(extra="forbid")

    event_ids: list[UUID] | None = Field(None, min_length=1, max_length=MAX_SELECTED_IDS)
    document_id: UUID | None = Field(None, description="what failed of this document, at the door too")
    stage: str | None = Field(None, max_length=64)
    code: str | None = Field(None, max_length=100)
    all: bool = False
    dry_run: bool = False

    @model_validator(mode="after")
    def _require_criterion(self) -> DeadLetterSelection:
        if not (self.event_ids or self.document_id or self.stage or self.code or self.all):
            raise ValueError("say which: event_ids, document_id, stage, code, or all")
        return self


class RedriveRequest(DeadLetterSelection):
    per_second: EventsPerSecond | None = Field(None, description="events a second at most")


class DiscardRequest(DeadLetterSelection):
    reason: str = Field(min_length=1, max_length=1000)


class OffsetRange(BaseModel):
    partition: int = Field(ge=0)
    start: int | None = Field(None, ge=0, lt=2**63)
    end: int | None = Field(None, ge=0, lt=2**63, description="the offset after the last")


class ReplayRequest(BaseModel):
    """Events of the topic that a stage reads, read by it once more. What is not given leaves everything in."""

    model_config = ConfigDict(extra="forbid")

    stage: str
    generation: str | None = Field(None, description="the live one where nothing is said")
    since: Timestamp | None = Field(None, description="appended then or later, by the log's clock; UTC where no zone is given")
    until: Timestamp | None = Field(None, description="appended before")
    offsets: list[OffsetRange] = Field([], description="partitions; others are left out where some are given")
    document_ids: list[UUID] | None = Field(None, min_length=1, max_length=MAX_SELECTED_IDS)
    collection: str | None = None
    per_second: EventsPerSecond | None = Field(None, description="events a second at most")
    dry_run: bool = False
