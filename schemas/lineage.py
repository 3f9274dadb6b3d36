"""Lineage: the chain of steps from an answer back to the uploaded bytes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.values import Span, Value

HopName = Literal[
    "chunk", "chunked", "embedded", "transcribed", "text", "accepted", "received", "blob"
]


class LogEvent(Value):
    """An event and its position in the log."""

    id: UUID = Field(description="Internal id of the event.")
    type: str = Field(description="CloudEvents type.")
    topic: str = Field(description="Topic of the event.")
    partition: int = Field(description="Partition of the event.")
    offset: int = Field(description="Offset of the event.")
    appended_at: datetime = Field(description="When the log stored the event, by the log's clock.")
    time: datetime | None = Field(description="When the producer emitted the event.")
    author: str = Field(description="Producer of the event.")
    how: str | None
    """Pipeline fingerprint: the settings of all stages that led to the event."""
    cause: UUID | None = Field(description="Id of the event that caused this one.")


class Hop(Value):
    """One step of the chain."""

    name: HopName = Field(description="Kind of step.")
    place: str
    """A table and row, `topic[partition]@offset`, or the key of a blob."""
    verified: bool | None
    """True if the content matches, false if it was altered or lost, null if there is nothing to
    compare with.
    """
    detail: str = Field(description="Explanation of the result.")
    event: LogEvent | None = Field(None, description="The event of this step, if it is an event.")
    sha256: str | None = Field(None, description="Hash of the text or bytes at this step.")


class DocumentLineage(Value):
    """Lineage of one revision, from the uploaded bytes (first hop) to the index (last hop)."""

    document_id: UUID = Field(description="Id of the document.")
    external_id: str | None = Field(description="The producer's id of the document.")
    title: str | None = Field(description="Title of the document.")
    revision: int = Field(description="Revision of the document.")
    order: list[int] = Field(description="Position among the document's revisions.")
    generation: str | None = Field(description="Generation that shows the revision.")
    source: str = Field(description="The producer's ce_source.")
    event_id: str = Field(description="The producer's ce_id.")
    content_sha256: str = Field(description="Hash of the uploaded bytes.")
    hops: list[Hop] = Field(description="Steps of the chain.")
    verified: bool = Field(description="Whether every step was verified.")
    broken: list[str] = Field(description="Steps that could not be verified.")


class CitationLineage(Value):
    """Lineage of one citation, from the quote (first hop) to the uploaded bytes (last hop)."""

    n: int = Field(description="Number of the citation in the answer.")
    quote: str = Field(description="The quote.")
    chunk_id: UUID = Field(description="Child chunk that contains the quote.")
    document_id: UUID = Field(description="Id of the document.")
    external_id: str | None = Field(description="The producer's id of the document.")
    title: str | None = Field(description="Title of the document.")
    revision: int = Field(description="Revision of the document.")
    generation: str = Field(description="Generation that was searched.")
    char_start: int = Field(description="Start of the quote in the document's Markdown.")
    char_end: int = Field(description="End of the quote in the document's Markdown.")
    pages: list[int] = Field(description="Pages of the quote, from 1.")
    spans: list[Span] = Field(description="Position of the quote in the document.")
    content_sha256: str | None = Field(description="Hash of the uploaded bytes.")
    hops: list[Hop] = Field(description="Steps of the chain.")
    verified: bool = Field(description="Whether every step was verified.")
    broken: list[str] = Field(description="Steps that could not be verified.")


class RunLineage(Value):
    """Lineage of every citation of an answer."""

    run_id: UUID = Field(description="Id of the run.")
    question: str = Field(description="The question.")
    generation: str = Field(description="Generation that was searched.")
    answered_at: datetime | None = Field(description="When the question was answered.")
    answer: str | None = Field(description="The answer.")
    citations: list[CitationLineage] = Field(description="Lineage of each citation.")
    verified: bool = Field(description="Whether every step of every citation was verified.")
    broken: list[str] = Field(description="Steps that could not be verified.")


def list_broken_hops(hops: list[Hop]) -> list[str]:
    return [f"{hop.place}: {hop.detail}" for hop in hops if hop.verified is False]
