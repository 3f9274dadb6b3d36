"""Request and response of a document ingestion."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from schemas.languages import Language
from schemas.values import DocumentFields, ExternalId, Notice


class IngestRequest(DocumentFields):
    """One document: exactly one of `url`, `text` and `storage_key`, or a file beside these fields in multipart form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(None, max_length=8192, description="fetched once, from public addresses only")
    text: str | None = Field(None, description="plain text or Markdown")
    language: Language | None = None
    storage_key: str | None = Field(None, max_length=1024, description="under uploads/<tenant>/ in the blob store")
    external_id: ExternalId | None = None
    force: bool = Field(False, description="process again even if nothing changed")


class IngestReceipt(BaseModel):
    """Returned once the event is durable in the log."""

    status: str = "accepted"
    document_id: UUID
    ingestion_job_id: UUID
    external_id: str | None
    content_sha256: str | None = Field(description="null for a URL: it is fetched later, at the door")
    duplicate: bool = Field(description="the document has these bytes, collection, tags and metadata already: nothing is done again")
    warnings: list[Notice] = []


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """Identity of the event that a request becomes. With an Idempotency-Key as its id, the event may already be in the log."""

    event_id: str
    has_idempotency_key: bool
