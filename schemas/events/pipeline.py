"""What the stages state behind the door: topics `accepted`, `ocr_done`, `chunked`, `entities`, `embedded`."""

from __future__ import annotations

from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import Field, model_validator

from schemas.events.envelope import EventData, check_blob_prefix
from schemas.values import Amendment, BlobRef, ChunkVector, Claim, DocumentFields, Mention, Notice, Order, Origin, ParentChunk, Relation, Transcript


class PipelineEventData(EventData):
    """What every event behind the door says: whose it is, where it stands among the document's revisions, and who waits for word of it."""

    tenant: str
    document_id: UUID
    order: Order
    origin: Origin

    @model_validator(mode="after")
    def check_own_blobs(self) -> Self:
        """Bytes of another document, or of another tenant, would become searchable under this one's name."""
        check_blob_prefix(self, f"{self.tenant}/{self.document_id}/")
        return self


class DocumentAccepted(DocumentFields, PipelineEventData, name="document.accepted", topic="accepted"):
    """The door let a document in: its bytes are pinned, its place among the revisions is fixed."""

    external_id: str | None = None
    blob: BlobRef
    payload_sha256: str = Field(description="of the producer's payload: the same ce_id with another one is a duplicate")
    received_at: datetime
    numbered: bool = Field(False, description="the source numbers its changes, so the document is its own")
    force: bool = False


class DocumentRemoved(PipelineEventData, name="document.removed", topic="accepted"):
    """The document is withdrawn from `order` on."""

    external_id: str | None = None
    payload_sha256: str
    received_at: datetime
    numbered: bool = False
    reason: str | None = None


class AmendmentAccepted(Amendment, PipelineEventData, name="document.amended", topic="accepted"):
    """Title, collection, tags, metadata or readers of a document are others, from `order` on."""

    external_id: str | None = None
    payload_sha256: str
    received_at: datetime
    numbered: bool = False


class DocumentTranscribed(PipelineEventData, name="document.transcribed", topic="ocr_done"):
    """A document as Markdown with places. Large transcripts lie in a blob as the same JSON, gzipped."""

    title: str | None = Field(None, description="given, else found in the document, else the filename")
    language: str | None = None
    media_type: str
    content_sha256: str = Field(description="of the document's bytes")
    text_sha256: str = Field(description="of the Markdown as UTF-8")
    characters: int
    pages: int | None = None
    transcript: Transcript | None = None
    blob: BlobRef | None = None
    warnings: list[Notice] = []


class DocumentChunked(PipelineEventData, name="document.chunked", topic="chunked"):
    """Part i of n of a revision's chunks; at most 64 children a part. A document without text has one part without chunks."""

    part: int = Field(ge=1)
    parts: int = Field(ge=1)
    title: str | None = None
    language: str | None = None
    parents: list[ParentChunk]


class EntitiesExtracted(PipelineEventData, name="entities.extracted", topic="entities"):
    """Names, relations and claims of part i of n."""

    part: int = Field(ge=1)
    parts: int = Field(ge=1)
    mentions: list[Mention]
    relations: list[Relation]
    claims: list[Claim]


class ChunksEmbedded(PipelineEventData, name="chunks.embedded", topic="embedded"):
    """Vectors of part i of n, float16, and the place of their token states."""

    part: int = Field(ge=1)
    parts: int = Field(ge=1)
    model: str
    dimension: int = Field(ge=1)
    vectors: list[ChunkVector]
    states: BlobRef | None = None
    state_dimension: int = 0


EVENTS: tuple[type[EventData], ...] = (
    DocumentAccepted,
    DocumentRemoved,
    AmendmentAccepted,
    DocumentTranscribed,
    DocumentChunked,
    EntitiesExtracted,
    ChunksEmbedded,
)
