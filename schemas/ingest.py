"""Request and response of the ingestion of a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args
from uuid import UUID

from pydantic import ConfigDict, Field

from schemas.models import Described
from schemas.values import DocumentFields, ExternalId, Language, Notice

JobState = Literal["accepted", "running", "searchable", "failed", "superseded", "withdrawn"]
"""State of one event. `accepted` lasts until the event has passed ingress; `superseded` means that
a later revision or a withdrawal came first.
"""

DocumentState = Literal["running", "searchable", "failed", "withdrawn"]
"""State of a document's latest revision."""

DocumentAccess = Literal["granted", "hidden", "unknown"]
"""Whether a caller may change a document. `unknown` ids may be used for a new one."""

DOCUMENT_STATES: tuple[DocumentState, ...] = get_args(DocumentState)
FINAL_STATES: frozenset[JobState] = frozenset({"searchable", "failed", "superseded", "withdrawn"})
"""States that no longer change without a new event."""


class IngestRequest(DocumentFields):
    """A document to ingest: one of `url`, `text` and `storage_key`, or a file in a form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(None, max_length=8192, description="Public URL to download once.")
    text: str | None = Field(None, description="Plain text or Markdown.")
    language: Language | None = None
    """Language as a BCP 47 tag. Detected if omitted."""
    storage_key: str | None = Field(None, max_length=1024)
    """Key of an uploaded file in the blob store, under `uploads/<tenant>/`."""
    external_id: ExternalId | None = None
    """Your id of the document. Requests with the same id are revisions of one document."""
    force: bool = Field(False, description="Process the document even if it has not changed.")


class IngestReceipt(Described):
    """The document was accepted and its event is durable in the log."""

    status: str = Field("accepted", description="Always `accepted`.")
    document_id: UUID = Field(description="Id of the document.")
    ingestion_job_id: UUID = Field(description="Id to query the status with.")
    external_id: str | None = Field(description="Your id of the document.")
    content_sha256: str | None
    """Hash of the bytes. Null for a URL, which is downloaded later."""
    duplicate: bool
    """Whether the document already has these bytes, collection, tags and metadata, so that nothing
    is processed again.
    """
    warnings: list[Notice] = Field([], description="Remarks about the request.")


@dataclass(frozen=True, slots=True)
class IngestionJob:
    """A submission whose status can be queried. It has the id of its event."""

    job_id: UUID
    tenant: str
    document_id: UUID
    event_id: str
    source: str
    external_id: str | None
    requested_by: str | None
