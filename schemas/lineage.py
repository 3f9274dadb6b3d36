"""Where something came from: hop by hop, back to the bytes that were uploaded."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.values import Span, Value

HopName = Literal["chunk", "chunked", "embedded", "transcribed", "text", "accepted", "received", "blob"]


class LogEvent(Value):
    """A fact at its own place in the log. `author` stated it, `how` fingerprints the chain of stages that made it, `cause` is the fact it followed from."""

    id: UUID
    type: str
    topic: str
    partition: int
    offset: int
    appended_at: datetime
    time: datetime | None
    author: str
    how: str | None
    cause: UUID | None


class Hop(Value):
    """One step back. `verified` is null where there is nothing (any more) to compare with, which `detail` explains; false where something was altered or lost."""

    name: HopName
    place: str = Field(description="a table with its row, topic[partition]@offset, or the key of a blob")
    verified: bool | None
    detail: str
    event: LogEvent | None = None
    sha256: str | None = Field(None, description="of the text or bytes found there")


class DocumentLineage(Value):
    """Of one revision, from the bytes (first) to what is searched (last)."""

    document_id: UUID
    external_id: str | None
    title: str | None
    revision: int
    order: list[int]
    generation: str | None
    source: str = Field(description="the producer's ce_source")
    event_id: str = Field(description="the producer's ce_id")
    content_sha256: str
    hops: list[Hop]
    verified: bool
    broken: list[str]


class CitationLineage(Value):
    """From a quote (first hop) back to the bytes (last hop)."""

    n: int
    quote: str
    chunk_id: UUID
    document_id: UUID
    external_id: str | None
    title: str | None
    revision: int
    generation: str
    char_start: int
    char_end: int
    pages: list[int]
    spans: list[Span]
    content_sha256: str | None
    hops: list[Hop]
    verified: bool
    broken: list[str]


class RunLineage(Value):
    """`broken` names every place where something does not fit."""

    run_id: UUID
    question: str
    generation: str
    answered_at: datetime | None
    answer: str | None
    citations: list[CitationLineage]
    verified: bool
    broken: list[str]


def list_broken_hops(hops: list[Hop]) -> list[str]:
    return [f"{hop.place}: {hop.detail}" for hop in hops if hop.verified is False]
