"""Events of the pipeline after ingress: topics `accepted`, `ocr_done`, `chunked`, `entities` and
`embedded`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Self
from uuid import UUID

from pydantic import Field, model_validator

from schemas.events.envelope import EventData, check_blob_prefix
from schemas.topics import ACCEPTED, CHUNKED, EMBEDDED, ENTITIES, OCR_DONE
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
)


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
    payload_sha256: str = Field(
        description=(
            "Hash of the producer's payload. The same ce_id with another hash is a duplicate id."
        )
    )
    received_at: datetime = Field(description="When the log received the producer's event.")
    numbered: bool = Field(
        False,
        description=(
            "Whether the source numbers its changes. Only that source can change the document then."
        ),
    )
    force: bool = Field(False, description="Process the document even if it has not changed.")


class DocumentRemoved(RequestedChange, PipelineEventData, name="document.removed", topic=ACCEPTED):
    """Ingress accepted a withdrawal, effective from `order` on."""

    external_id: str | None = None
    payload_sha256: str = Field(description="Hash of the producer's payload.")
    received_at: datetime = Field(description="When the log received the producer's event.")
    numbered: bool = Field(
        False, description="Whether the withdrawal is ordered by the numbers of its source."
    )
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
    numbered: bool = Field(
        False, description="Whether the amendment is ordered by the numbers of its source."
    )


class DocumentTranscribed(PipelineEventData, name="document.transcribed", topic=OCR_DONE):
    """A document was converted to Markdown with positions.

    A large transcript is in a blob, as gzipped JSON.
    """

    title: str | None = Field(
        None, description="Title from the producer, else from the document, else the file name."
    )
    language: str | None = Field(None, description="Language as a BCP 47 tag.")
    media_type: str
    content_sha256: str = Field(description="Hash of the document's bytes.")
    text_sha256: str = Field(description="Hash of the Markdown as UTF-8.")
    characters: int = Field(description="Length of the Markdown in characters.")
    pages: int | None = Field(None, description="Number of pages.")
    document_date: date | None = Field(None, description="Date found in the document.")
    transcript: Transcript | None = Field(
        None, description="The transcript, unless it is in `blob`."
    )
    blob: BlobRef | None = Field(None, description="Reference to a large transcript.")
    warnings: list[Notice] = Field([], description="Remarks about the transcription.")


class DocumentChunked(PipelineEventData, name="document.chunked", topic=CHUNKED):
    """One part of a revision's chunks, with at most 64 child chunks.

    A document without text has one part without chunks.
    """

    part: int = Field(ge=1, description="Number of this part, from 1.")
    parts: int = Field(ge=1, description="Number of parts of the revision.")
    title: str | None = None
    language: str | None = None
    parents: list[ParentChunk] = Field(description="Parent chunks with their child chunks.")


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


EVENTS: tuple[type[EventData], ...] = (
    DocumentAccepted,
    DocumentRemoved,
    AmendmentAccepted,
    DocumentTranscribed,
    DocumentChunked,
    EntitiesExtracted,
    ChunksEmbedded,
)
