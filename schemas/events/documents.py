"""Events of documents: those that producers send to topic `raw`, and those of the pipeline, topics
`accepted`, `ocr_done`, `chunked`, `entities` and `embedded`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Self
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator

from schemas.events.envelope import EventData, check_blob_prefix
from schemas.generations import ChunkSizes, EntitySchema
from schemas.ids import make_document_id
from schemas.principals import Tenant
from schemas.topics import ACCEPTED, CHUNKED, EMBEDDED, ENTITIES, OCR_DONE, RAW
from schemas.values import (
    Amendment,
    BlobRef,
    ChunkVector,
    Claim,
    DocumentFields,
    Mention,
    Notice,
    Order,
    Origin,
    ParentChunk,
    Relation,
    RequestedChange,
    Transcript,
    Value,
)


def _one_of_schema(*names: str) -> dict[str, Any]:
    """Return JSON Schema in which exactly one of these properties is a string."""
    return {
        "oneOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in names]
    }


class Content(Value):
    """The content of a document, in exactly one of four forms."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra=_one_of_schema("base64", "text", "url", "storage_key"),
    )

    base64: str | None = Field(None, description="The bytes of a small file.")
    text: str | None = Field(None, description="Plain text or Markdown.")
    url: str | None = Field(None, max_length=8192, description="URL to download once, at ingress.")
    storage_key: str | None = Field(None, max_length=1024)
    """Key of an uploaded file in the blob store, under `uploads/<tenant>/`."""

    @model_validator(mode="after")
    def check_exactly_one(self) -> Self:
        set_fields = [
            name
            for name in ("base64", "text", "url", "storage_key")
            if getattr(self, name) is not None
        ]
        if len(set_fields) != 1:
            raise ValueError(
                "set exactly one of base64, text, url and storage_key; got "
                f"{', '.join(set_fields) or 'none'}"
            )
        return self


class DocumentReceived(
    DocumentFields, RequestedChange, EventData, name="document.received", topic=RAW
):
    """A document, or a new revision of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: Tenant = Field("default", description="Tenant that the document belongs to.")
    external_id: str | None = Field(None, min_length=1, max_length=1024)
    """The producer's id of the document. Events with the same id are revisions of one document."""
    content: Content = Field(description="Content of the document.")
    force: bool = Field(False, description="Process the document even if it has not changed.")

    def resolve_document_id(self, source: str, content_sha256: str | None = None) -> UUID | None:
        """Return the id of the document, or None if it depends on bytes whose hash is not given.

        `source` is the ce_source if the source numbers its changes, else ''.
        """
        name = self.external_id or self.source_uri or self.content.url or content_sha256
        return make_document_id(self.tenant, source, name) if name else None


class DocumentReference(RequestedChange, EventData):
    """A reference to a document by external id or by document id."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=_one_of_schema("external_id", "document_id")
    )

    tenant: Tenant = Field("default", description="Tenant that the document belongs to.")
    external_id: str | None = Field(None, min_length=1, max_length=1024)
    """The producer's id of the document."""
    document_id: str | None = None
    """Id of the document, instead of `external_id`."""

    @model_validator(mode="after")
    def check_exactly_one(self) -> Self:
        if (self.external_id is None) == (self.document_id is None):
            raise ValueError("set either external_id or document_id")
        return self

    def resolve_document_id(self, source: str) -> UUID | None:
        """Return the id of the document, or None if `document_id` is not a UUID.

        `source` is the ce_source if the source numbers its changes, else ''.
        """
        if self.external_id is not None:
            return make_document_id(self.tenant, source, self.external_id)
        try:
            return UUID(self.document_id)
        except ValueError:
            return None


class DocumentWithdrawn(DocumentReference, name="document.withdrawn", topic=RAW):
    """Withdraw a document. The result does not depend on the sequence in which events arrive."""

    reason: str | None = Field(None, max_length=1000, description="Why the document is withdrawn.")


class DocumentAmended(Amendment, DocumentReference, name="document.amended", topic=RAW):
    """Change title, collection, tags, metadata or readers without processing the text again.

    The amendment holds until a later revision or amendment states the same field.
    """

    @model_validator(mode="after")
    def check_not_empty(self) -> Self:
        if not self.stated_fields():
            raise ValueError("set at least one of title, collection, tags, metadata and readers")
        return self


class PipelineEventData(EventData):
    """Fields of every event after ingress: the document, its order and its origin."""

    tenant: str
    document_id: UUID
    order: Order
    origin: Origin = Field(description="The producer's names for the document and its event.")

    @model_validator(mode="after")
    def check_own_blobs(self) -> Self:
        """Reject blobs of another document or tenant.

        Their content would become searchable under this document.
        """
        check_blob_prefix(self, f"{self.tenant}/{self.document_id}/")
        return self


class DocumentAccepted(
    DocumentFields, RequestedChange, PipelineEventData, name="document.accepted", topic=ACCEPTED
):
    """Ingress accepted a document: its bytes are pinned, its position among revisions is fixed."""

    external_id: str | None = None
    blob: BlobRef = Field(description="The bytes of the document.")
    payload_sha256: str
    """Hash of the producer's payload. The same ce_id with another hash is a duplicate id."""
    received_at: datetime = Field(description="When the log received the producer's event.")
    numbered: bool = False
    """Whether the source numbers its changes. Only that source can change the document then."""
    force: bool = Field(False, description="Process the document even if it has not changed.")


class DocumentRemoved(RequestedChange, PipelineEventData, name="document.removed", topic=ACCEPTED):
    """Ingress accepted a withdrawal, effective from `order` on."""

    external_id: str | None = None
    payload_sha256: str = Field(description="Hash of the producer's payload.")
    received_at: datetime = Field(description="When the log received the producer's event.")
    numbered: bool = False
    """Whether the withdrawal is ordered by the numbers of its source."""
    reason: str | None = Field(None, description="Why the document was withdrawn.")


class AmendmentAccepted(
    Amendment, RequestedChange, PipelineEventData, name="document.amended", topic=ACCEPTED
):
    """Ingress accepted changes to title, collection, tags, metadata or readers.

    They take effect from `order` on.
    """

    external_id: str | None = None
    payload_sha256: str = Field(description="Hash of the producer's payload.")
    received_at: datetime = Field(description="When the log received the producer's event.")
    numbered: bool = False
    """Whether the amendment is ordered by the numbers of its source."""


class DocumentTranscribed(PipelineEventData, name="document.transcribed", topic=OCR_DONE):
    """A document was converted to Markdown with positions.

    A large transcript is in a blob, as gzipped JSON.
    """

    title: str | None = None
    """Title from the producer, else from the document, else the file name."""
    language: str | None = Field(None, description="Language as a BCP 47 tag.")
    media_type: str
    content_sha256: str = Field(description="Hash of the document's bytes.")
    text_sha256: str = Field(description="Hash of the Markdown as UTF-8.")
    characters: int = Field(description="Length of the Markdown in characters.")
    pages: int | None = Field(None, description="Number of pages.")
    document_date: date | None = Field(None, description="Date found in the document.")
    transcript: Transcript | None = None
    """The transcript, unless it is in `blob`."""
    blob: BlobRef | None = Field(None, description="Reference to a large transcript.")
    warnings: list[Notice] = Field([], description="Remarks about the transcription.")
    chunk: ChunkSizes | None = Field(None, description="How its collection is split.")
    extract: EntitySchema | None = Field(None, description="What its collection extracts.")


class DocumentChunked(PipelineEventData, name="document.chunked", topic=CHUNKED):
    """One part of a revision's chunks, with at most 64 child chunks.

    A document without text has one part without chunks.
    """

    part: int = Field(ge=1, description="Number of this part, from 1.")
    parts: int = Field(ge=1, description="Number of parts of the revision.")
    title: str | None = None
    language: str | None = None
    parents: list[ParentChunk] = Field(description="Parent chunks with their child chunks.")
    extract: EntitySchema | None = Field(None, description="What its collection extracts.")


class EntitiesExtracted(PipelineEventData, name="entities.extracted", topic=ENTITIES):
    """Entities, relations and claims of one part of a revision."""

    part: int = Field(ge=1, description="Number of this part, from 1.")
    parts: int = Field(ge=1, description="Number of parts of the revision.")
    mentions: list[Mention]
    relations: list[Relation]
    claims: list[Claim]


class ChunksEmbedded(PipelineEventData, name="chunks.embedded", topic=EMBEDDED):
    """Vectors of one part of a revision, and a reference to their token states."""

    part: int = Field(ge=1, description="Number of this part, from 1.")
    parts: int = Field(ge=1, description="Number of parts of the revision.")
    model: str = Field(description="Model that computed the vectors.")
    dimension: int = Field(ge=1, description="Dimension of the vectors.")
    vectors: list[ChunkVector]
    states: BlobRef | None = Field(None, description="Token states of all chunks of the part.")
    state_dimension: int = Field(0, description="Dimension of the token states.")
