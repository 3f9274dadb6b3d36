"""Entries and messages of the event feed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field


class LogEntry(BaseModel):
    """A fact in the log, without its payload; `data` is there for outcomes, dead letters and decisions. `cursor` is the place behind it."""

    cursor: str
    topic: str
    partition: int
    offset: int
    key: str | None = Field(None, description="of the record: the document behind the door, the run of a question, before the door the producer's own")
    type: str | None = Field(description="CloudEvents type, where it could be read")
    id: str | None
    source: str | None
    time: str | None
    appended_at: str
    tenant: str | None
    document_id: UUID | None
    cause: str | None
    how: str | None
    bytes: int
    data: dict[str, Any] | None = None


class LogPage(BaseModel):
    items: list[LogEntry]
    next: str = Field(description="the place behind the last one that was looked at")
    end: bool = Field(description="nothing follows at the moment")
    missed: int = Field(description="events behind `after` that the log no longer keeps; told once, to whoever goes on from `next`")
    at_least: bool = Field(False, description="`missed` is a lower bound: how many exactly is no longer known")


class FeedMessage(BaseModel):
    """One message of a stream. `cursor` is null where a message stands at no place of its own."""

    event: str
    data: dict[str, Any]
    cursor: str | None = None
