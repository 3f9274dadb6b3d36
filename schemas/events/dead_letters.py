"""What could not be processed: topic `dead_letters`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from schemas.events.envelope import EventData, check_blob_prefix
from schemas.values import BlobRef, DocumentSummary, Value


class LogPosition(Value):
    """Where a record stands in the log; the topic is the one that was read, without prefix."""

    topic: str
    partition: int
    offset: int


class EventDeadLettered(EventData, name="event.buried", topic="dead_letters"):
    """An event that this stage cannot process, where it stands, and why. Its record stays there, or in the blob `record` where the topic forgets."""

    stage: str
    generation: str | None = None
    event_id: UUID = Field(description="internal id; for an unreadable event made from its position")
    buried_type: str | None = Field(None, description="CloudEvents type, where it could be read")
    tenant: str | None = None
    document_id: UUID | None = None
    place: LogPosition
    code: str
    detail: str
    remedy: str = ""
    traceback: str | None = Field(None, description="of a bug of ours")
    attempts: int = 1
    record: BlobRef | None = Field(None, description="the record as it came, for topics with finite retention")
    headers: BlobRef | None = Field(None, description="of that record: a JSON object, each value in base64")
    appended_at: datetime | None = Field(None, description="of that record, by the log's clock")
    redriven: UUID | None = Field(None, description="the replay that tried it once more")
    producer_event_id: str | None = None
    producer_source: str | None = None
    said: DocumentSummary | None = Field(
        None, description="by an event of `raw`, as far as it could be read: nothing else tells of a document that came no further"
    )

    @model_validator(mode="after")
    def check_own_blobs(self) -> Self:
        """A redrive reads them as the record that came."""
        check_blob_prefix(self, f"_buried/{self.event_id}")
        return self


class DeadLetterClosed(EventData, name="burial.closed", topic="dead_letters"):
    """Nothing is left to do about a buried event."""

    stage: str
    generation: str | None = None
    event_id: UUID
    tenant: str | None = None
    how: Literal["redriven", "superseded", "discarded"] = Field(description="`superseded`: a later revision or a withdrawal came meanwhile")
    reason: str = ""
    closed_at: datetime


EVENTS: tuple[type[EventData], ...] = (EventDeadLettered, DeadLetterClosed)
