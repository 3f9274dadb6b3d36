"""Shapes that responses share, and the responses that `anabranch.client` reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar
from uuid import UUID

from pydantic import ConfigDict, Field, WithJsonSchema

from schemas.events.control import Scope
from schemas.ingest import JobState
from schemas.models import Described
from schemas.run_records import StoppedState
from schemas.values import BlobRef, Notice

Item = TypeVar("Item")
# Some times come from Postgres as JSON text, and leave as they came.
Time = Annotated[datetime | str, WithJsonSchema({"type": "string", "format": "date-time"})]

Day = Annotated[date | str, WithJsonSchema({"type": "string", "format": "date"})]

JsonObject = dict[str, Any]


class ResponseModel(Described):
    """A response that never drops a field in silence: one that is not declared is a bug (500).

    The schema permits further fields all the same, since a later version may add some.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra=lambda schema: schema.pop("additionalProperties", None)
    )


class Page(ResponseModel, Generic[Item]):
    items: list[Item]
    next: str | None = Field(description="`after` of the next page; null on the last one.")

    @classmethod
    def build(cls, items: Sequence[object], next_cursor: str | None = None) -> Self:
        return cls.model_validate({"items": items, "next": next_cursor})


class NumberedPage(ResponseModel, Generic[Item]):
    """A page of a list that is ordered by a number."""

    items: list[Item]
    next: int | None = Field(description="`after` of the next page; null on the last one.")

    @classmethod
    def build(cls, items: Sequence[object], next_cursor: int | None) -> Self:
        return cls.model_validate({"items": items, "next": next_cursor})


class AcceptedChange(ResponseModel):
    """A change of a document that is durable in the log, and will soon be visible."""

    status: Literal["accepted"] = "accepted"
    document_id: UUID
    ingestion_job_id: UUID = Field(description="For GET /v1/ingest/status/{job}.")


class ErrorDetail(ResponseModel):
    code: str = Field(description="Code for programs.")
    detail: str = Field(description="What happened.")
    remedy: str = Field(description="What to do.")


class StageProgress(ResponseModel):
    done: int
    total: int
    unit: Literal["pages", "parts"] = Field(description="A part has at most 64 chunks.")


class StageStatus(ResponseModel):
    """Work of one stage on one revision."""

    stage: str
    state: str = Field(description="waiting, running, done, failed or skipped.")
    attempts: int
    topic: str | None = Field(description="Topic of the event that the stage read.")
    partition: int | None
    offset: int | None
    started_at: Time | None
    duration_ms: float | None
    error: ErrorDetail | None
    progress: StageProgress | None = None
    """Progress on a long document while the stage runs, stored once per second."""


class DocumentWaiting(ResponseModel):
    """Why an event or a document is not searchable yet."""

    stage: str = Field(description="The first stage that is not done.")
    pending: int | None
    """Events that the stage has yet to process, of all documents. Null below role admin."""
    progress: StageProgress | None = Field(description="Progress of this stage on a long document.")
    paused: bool = Field(description="Whether the stage has stopped reading for now.")
    reason: str | None = Field(description="Null for callers other than operators.")
    remedy: str | None = Field(description="What to do. Null for callers other than operators.")


class DurationRange(ResponseModel):
    """An estimate between two bounds."""

    low: float
    high: float


class Document(ResponseModel):
    """A document with its latest revision.

    Before any of its events is admitted, most fields are null.
    """

    document_id: UUID
    external_id: str | None = Field(description="The producer's own id.")
    source: str | None = Field(description="`ce_source` of the producer.")
    source_uri: str | None
    filename: str | None
    media_type: str | None
    title: str | None
    language: str | None = Field(description="BCP 47.")
    collection: str | None
    tags: list[str]
    metadata: JsonObject
    document_date: Day | None
    content_sha256: str | None
    blob: BlobRef | None = Field(description="The original file.")
    bytes: int | None = Field(description="Size of the original file.")
    revision: int = Field(description="The latest revision; 0 before the first is admitted.")
    received_at: Time | None
    ingestion_job_id: UUID | None = Field(description="Job of the latest revision.")
    visible_revision: int | None = Field(description="The revision that queries see.")
    state: str = Field(description="State of the latest revision.")
    chunks_count: int | None
    characters: int | None = Field(description="Length of the Markdown.")
    pages: int | None
    warnings: list[Notice] | None
    error: ErrorDetail | None
    readers: list[str] | None = None
    """Who may read it; null for all. Absent for callers that are limited to readers."""
    waiting: DocumentWaiting | None = None
    """Absent once it is searchable, and in the first two seconds."""


class DocumentStatus(Document):
    stages: list[StageStatus] = []
    tokens_estimate: int = 0


class JobStatus(ResponseModel):
    """Status of one event: an upload, an amendment or a withdrawal."""

    ingestion_job_id: UUID
    document_id: UUID | None = Field(description="Null for an event that could not be read.")
    external_id: str | None
    state: JobState
    stages: list[StageStatus]
    chunks_count: int = Field(description="Chunks that queries see; 0 until it is searchable.")
    tokens_estimate: int
    warnings: list[Notice]
    revision: int = Field(0, description="Absent until ingress has assigned it.")
    content_sha256: str | None = Field(None, description="Absent until ingress has read the bytes.")
    waiting: DocumentWaiting | None = None
    """Absent in a final state, and in the first two seconds."""


RunState = Annotated[
    Literal["running", "completed", StoppedState] | None,
    Field(
        description=(
            "Null for a query that was not started as a run and has no recorded answer. "
            "`interrupted`: the process that ran it ended."
        )
    ),
]


class RunSummary(ResponseModel):
    run_id: UUID
    kind: Literal["query", "search"] | None
    received_at: Time | None
    answered_at: Time | None = Field(description="Null until the answer is recorded.")
    state: RunState
    generation: str | None
    query: str | None
    profile: str | None
    refused: bool | None
    answer: str | None


class AcceptedErasure(ResponseModel):
    receipt_id: UUID = Field(description="For GET /v1/erasures/{receipt_id}.")
    status: Literal["accepted"] = "accepted"


class ErasureLog(ResponseModel):
    events: int | None = Field(description="Events in the log that can no longer be read.")
    method: str | None = Field(description="How, such as `keys destroyed`.")


class ErasureReceipt(ResponseModel):
    """Removed and remaining data of an erasure; null until it is complete."""

    receipt_id: UUID
    tenant: str
    scope: Scope
    name: str
    state: Literal["running", "done"]
    requested_at: Time
    completed_at: Time | None
    documents: int | None
    removed: dict[str, int] | None = Field(description="Removed rows, keys and files by place.")
    remains: list[str] | None = Field(description="Copies that the erasure cannot reach.")
    raw_until: Time | None = Field(description="When the last event leaves topic `raw`.")
    log: ErasureLog
