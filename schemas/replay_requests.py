"""Requests to redrive or discard dead letters and to replay events."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field, model_validator

from schemas.models import Described, Request
from schemas.timestamps import Timestamp

MIN_EVENTS_PER_S = 0.001
"""One event in about 17 minutes."""
MAX_EVENTS_PER_S = 1_000_000
"""The largest rate that the tables can store."""


MAX_SELECTED_IDS = 10_000
EventsPerSecond = Annotated[float, Field(ge=MIN_EVENTS_PER_S, le=MAX_EVENTS_PER_S)]


class DeadLetterSelection(Request):
    """Selects open dead letters that match all given criteria."""

    event_ids: list[UUID] | None = Field(None, min_length=1, max_length=MAX_SELECTED_IDS)
    """Ids of the events."""
    document_id: UUID | None = None
    """Dead letters of this document, including those at ingress."""
    stage: str | None = Field(None, max_length=64, description="Dead letters of this stage.")
    code: str | None = Field(None, max_length=100, description="Dead letters with this error code.")
    all: bool = Field(False, description="Select all open dead letters.")
    dry_run: bool = Field(False, description="Report what would happen without doing it.")

    @model_validator(mode="after")
    def _require_criterion(self) -> DeadLetterSelection:
        if not (self.event_ids or self.document_id or self.stage or self.code or self.all):
            raise ValueError("set at least one of event_ids, document_id, stage, code and all")
        return self


class RedriveRequest(DeadLetterSelection):
    """Process dead letters again."""

    per_second: EventsPerSecond | None = Field(None, description="Maximum events per second.")


class DiscardRequest(DeadLetterSelection):
    """Close dead letters without processing them."""

    reason: str = Field(min_length=1, max_length=1000)
    """Why the dead letters are discarded."""


class OffsetRange(Described):
    """Offsets of one partition."""

    partition: int = Field(ge=0, description="Number of the partition.")
    start: int | None = Field(None, ge=0, lt=2**63)
    """First offset. Defaults to the beginning."""
    end: int | None = Field(None, ge=0, lt=2**63)
    """Offset after the last one. Defaults to the end."""


class ReplayRequest(Request):
    """Process the events of a stage's topic again. Omitted criteria match all events."""

    stage: str = Field(description="Stage that processes the events.")
    generation: str | None = None
    """Generation of the stage. Defaults to the live one."""
    since: Timestamp | None = None
    """Events appended at or after this time, by the log's clock. UTC if no time zone is given."""
    until: Timestamp | None = Field(None, description="Events appended before this time.")
    offsets: list[OffsetRange] = []
    """Offset ranges. Partitions without a range are skipped."""
    document_ids: list[UUID] | None = Field(None, min_length=1, max_length=MAX_SELECTED_IDS)
    """Events of these documents."""
    collection: str | None = Field(None, description="Events of documents in this collection.")
    per_second: EventsPerSecond | None = Field(None, description="Maximum events per second.")
    dry_run: bool = Field(False, description="Report what would happen without doing it.")
