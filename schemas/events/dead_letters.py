"""Events that could not be processed: topic `dead_letters`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from schemas.events.envelope import EventData, check_blob_prefix
from schemas.topics import DEAD_LETTERS
from schemas.values import BlobRef, DocumentSummary, Value


class LogPosition(Value):
    """Position of a record in the log. The topic has no prefix."""

    topic: str
    partition: int
    offset: int


class EventDeadLettered(EventData, name="event.dead_lettered", topic=DEAD_LETTERS):
    """A stage could not process an event.

    The record stays at its position, or in the blob `record` if its topic has finite retention.
    """

    stage: str = Field(description="Stage that could not process the event.")
    generation: str | None = Field(None, description="Generation of the stage, if it has one.")
    event_id: UUID
    """Internal id. Derived from the position if the event is unreadable."""
    original_type: str | None = Field(None, description="CloudEvents type, if it could be read.")
    tenant: str | None = None
    document_id: UUID | None = None
    position: LogPosition = Field(description="Position of the record.")
    code: str = Field(description="Error code.")
    detail: str = Field(description="What happened.")
    remedy: str = Field("", description="What to do.")
    traceback: str | None = Field(None, description="Traceback of an unexpected exception.")
    attempts: int = Field(1, description="Attempts to process the event.")
    record: BlobRef | None = None
    """The original record, for topics with finite retention."""
    headers: BlobRef | None = None
    """Headers of the original record: a JSON object with base64 values."""
    appended_at: datetime | None = None
    """When the original record was appended, by the log's clock."""
    redriven: UUID | None = None
    """The replay that redrove the event, if it failed again."""
    producer_event_id: str | None = None
    producer_source: str | None = None
    document_summary: DocumentSummary | None = None
    """Descriptive fields of the document, as far as an event of `raw` could be read. No other event
    describes a document that fails at ingress.
    """

    @model_validator(mode="after")
    def check_own_blobs(self) -> Self:
        """Reject blobs of other events: a redrive processes the blob as the original record."""
        check_blob_prefix(self, f"_dead_letters/{self.event_id}")
        return self


class DeadLetterClosed(EventData, name="dead_letter.closed", topic=DEAD_LETTERS):
    """A dead letter needs no further action."""

    stage: str
    generation: str | None = None
    event_id: UUID
    tenant: str | None = None
    resolution: Literal["redriven", "superseded", "discarded"]
    """Resolution. `superseded`: a later revision or a withdrawal came first."""
    reason: str = Field("", description="Free text.")
    closed_at: datetime
