"""Entries and messages of the event feed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.models import Described


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """Events to read. None stands for all topics or documents."""

    topics: Sequence[str] | None = None
    document: UUID | None = None


class LogEntry(Described):
    """An event in the log, without its payload."""

    cursor: str = Field(description="Cursor after this event.")
    topic: str = Field(description="Topic of the event, without prefix.")
    partition: int = Field(description="Partition of the event.")
    offset: int = Field(description="Offset of the event.")
    key: str | None = None
    """Key of the record: the document id, or the run id of a question. On `raw`, the producer's own
    key.
    """
    type: str | None = Field(description="CloudEvents type, if it could be read.")
    id: str | None = Field(description="The ce_id of the event.")
    source: str | None = Field(description="The ce_source of the event.")
    time: str | None = Field(description="When the producer emitted the event.")
    appended_at: str = Field(description="When the log stored the event, by the log's clock.")
    tenant: str | None = Field(description="Tenant of the event.")
    document_id: UUID | None = Field(description="Id of the document that the event is about.")
    cause: str | None = Field(description="Id of the event that caused this one.")
    how: str | None = Field(description="Pipeline fingerprint of the event.")
    bytes: int = Field(description="Size of the record in bytes.")
    data: dict[str, Any] | None = None
    """Payload of outcomes, dead letters and control events; null for other events."""


class EventBucket(Described):
    """Number of events in an interval."""

    start: datetime = Field(description="Start of the interval, by the log's clock.")
    counts: dict[str, int] = Field(description="By topic, without generation.")


class EventCounts(Described):
    """Numbers of events by time."""

    bucket_seconds: int = Field(description="Length of an interval.")
    items: list[EventBucket] = Field(description="Intervals with events, the earliest first.")


class LogPage(Described):
    """A page of events."""

    items: list[LogEntry] = Field(description="Events in the order of reading.")
    next: str = Field(description="Cursor for the next page.")
    end: bool = Field(description="Whether the end of the log was reached.")
    missed: int
    """Events after `after` that have expired. Reported once: a request from `next` does not report
    them again.
    """
    at_least: bool = Field(False, description="Whether `missed` is a lower bound.")


class FeedMessage(Described):
    """One message of a stream. `cursor` is None for messages without a position."""

    event: str
    data: dict[str, Any]
    cursor: str | None = None
