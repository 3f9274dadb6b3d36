"""Erasing: decisions on topic `control`, which hold names and counts, never what was erased."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData

Scope = Literal["document", "collection", "tenant"]


class ErasureRequested(EventData, name="erasure.requested", topic="control"):
    """Everything of these documents is to go, for good."""

    receipt_id: UUID
    tenant: str
    scope: Scope
    subject: str = Field(description="the document's id, or the collection's or the tenant's name")
    requested_at: datetime


class KeysDestroyed(EventData, name="key.destroyed", topic="control"):
    """What was sealed with these keys cannot be read any more. Applied again by each start, whatever backup the keystore came from."""

    receipt_id: UUID
    tenant: str
    keys: list[UUID]


class ErasureCompleted(EventData, name="erasure.completed", topic="control"):
    """The receipt."""

    receipt_id: UUID
    tenant: str
    documents: int
    removed: dict[str, int] = Field(description="place → rows, blobs or keys")
    events: int = Field(description="in the log, that cannot be read any more")
    method: str = Field(description="what became of the log: `keys destroyed`, or `nothing` where the tenant keeps its events readable")
    remains: list[str] = Field(description="places that still hold something, and until when")
    raw_until: datetime | None = Field(description="when the retention of topic `raw` has passed")
    completed_at: datetime


EVENTS: tuple[type[EventData], ...] = (ErasureRequested, KeysDestroyed, ErasureCompleted)
