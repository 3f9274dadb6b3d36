"""Erasure: topic `control`. These events contain names and counts, never erased content."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.topics import CONTROL

Scope = Literal["document", "collection", "tenant"]


class ErasureRequested(EventData, name="erasure.requested", topic=CONTROL):
    """Permanent erasure of documents was requested."""

    receipt_id: UUID = Field(description="Id of the request and its receipt.")
    tenant: str
    scope: Scope = Field(description="What to erase.")
    subject: str = Field(description="Id of the document, or name of the collection or the tenant.")
    requested_at: datetime


class KeysDestroyed(EventData, name="key.destroyed", topic=CONTROL):
    """Encryption keys were destroyed, so that their payloads are unreadable.

    Applied again at every start, since the keystore may have been restored from a backup.
    """

    receipt_id: UUID
    tenant: str
    keys: list[UUID] = Field(description="Ids of the destroyed keys.")


class ErasureCompleted(EventData, name="erasure.completed", topic=CONTROL):
    """The receipt of an erasure."""

    receipt_id: UUID
    tenant: str
    documents: int = Field(description="Number of erased documents.")
    removed: dict[str, int] = Field(description="Location → number of removed rows, blobs or keys.")
    events: int = Field(description="Number of events in the log that became unreadable.")
    method: str = Field(
        description="What happened to the log: `keys destroyed`, or `nothing` if the tenant's events are not encrypted."
    )
    remains: list[str] = Field(description="Locations that still hold data, and until when.")
    raw_until: datetime | None = Field(
        description="When the last original event expires from topic `raw`."
    )
    completed_at: datetime


EVENTS: tuple[type[EventData], ...] = (ErasureRequested, KeysDestroyed, ErasureCompleted)
