"""What is asked of dead letters and replays."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.moments import Moment
from schemas.pace import FASTEST, SLOWEST

LONGEST = 10_000
PerSecond = Annotated[float, Field(ge=SLOWEST, le=FASTEST)]
"""Events."""


class Chosen(BaseModel):
    """Open dead letters: by id, document, stage or code; all that are open where `all` says so."""

    model_config = ConfigDict(extra="forbid")

    event_ids: list[UUID] | None = Field(None, min_length=1, max_length=LONGEST)
    document_id: UUID | None = Field(None, description="what failed of this document, at the door too")
    stage: str | None = Field(None, max_length=64)
    code: str | None = Field(None, max_length=100)
    all: bool = False
    dry_run: bool = False

    @model_validator(mode="after")
    def _says_which(self) -> Chosen:
        if not (self.event_ids or self.document_id or self.stage or self.code or self.all):
            raise ValueError("say which: event_ids, document_id, stage, code, or all")
        return self


class RedriveRequest(Chosen):
    per_second: PerSecond | None = Field(None, description="events a second at most")


class DiscardRequest(Chosen):
    reason: str = Field(min_length=1, max_length=1000)


class Offsets(BaseModel):
    partition: int = Field(ge=0)
    start: int | None = Field(None, ge=0, lt=2**63)
    end: int | None = Field(None, ge=0, lt=2**63, description="the offset after the last")


class ReplayRequest(BaseModel):
    """Events of the topic that a stage reads, read by it once more. What is not given leaves everything in."""

    model_config = ConfigDict(extra="forbid")

    stage: str
    generation: str | None = Field(None, description="the live one where nothing is said")
    since: Moment | None = Field(None, description="appended then or later, by the log's clock; UTC where no zone is given")
    until: Moment | None = Field(None, description="appended before")
    offsets: list[Offsets] = Field([], description="partitions; others are left out where some are given")
    document_ids: list[UUID] | None = Field(None, min_length=1, max_length=LONGEST)
    collection: str | None = None
    per_second: PerSecond | None = Field(None, description="events a second at most")
    dry_run: bool = False
