"""What projections write. A row says what is so; how it is stored, and under which generation, is the ledger's business.

Every row of a document carries `document_id` and `order`; rows of the same kind, document, order and id are the same row (writing one again changes nothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.generations import Generation
from schemas.judgements import GradedPassage
from schemas.sources import SequenceReset, SourceSpec
from schemas.values import BlobRef, DocumentSummary

OrderKey = tuple[int, ...]
PartKind = Literal["chunks", "vectors", "entities"]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """The latest revision of a document as it was accepted; written only if `order` is later than the latest the table holds."""

    document_id: UUID
    order: OrderKey
    tenant: str
    external_id: str | None
    source: str
    source_uri: str | None
    filename: str | None
    media_type: str | None
    title: str | None
    language: str | None
    collection: str | None
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    document_date: date | None
    content_sha256: str
    blob: BlobRef
    event_id: str
    accepted_id: UUID
    received_at: datetime
    numbered: bool = False
    """The source numbers its changes: a withdrawal without a number then comes after its last one."""
    readers: tuple[str, ...] | None = None
    """As the revision named them; None where it named none."""


@dataclass(frozen=True, slots=True)
class WithdrawalRow:
    """From `order` on the document is withdrawn; its tombstone stays."""

    document_id: UUID
    order: OrderKey
    tenant: str
    external_id: str | None
    source: str
    event_id: str
    accepted_id: UUID
    received_at: datetime
    reason: str | None
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class AmendmentRow:
    """From `order` on this is said of the document, until something later speaks of the same (see `schemas.amendments`)."""

    document_id: UUID
    order: OrderKey
    tenant: str
    fields: dict[str, Any]
    accepted_id: UUID
    received_at: datetime


@dataclass(frozen=True, slots=True)
class TextRow:
    """The Markdown of a revision, per generation: inline, or in a blob when large."""

    document_id: UUID
    order: OrderKey
    tenant: str
    title: str | None
    language: str | None
    media_type: str
    content_sha256: str
    text_sha256: str
    characters: int
    pages: int | None
    markdown: str | None
    blob: BlobRef | None
    warnings: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ParentRow:
    id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    ordinal: int
    text: str
    section: str
    char_start: int
    char_end: int
    pages: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class ChildRow:
    id: UUID
    parent_id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    ordinal: int
    kind: str
    text: str
    prefix: str
    char_start: int
    char_end: int
    spans: list[dict[str, Any]]
    tokens: int
    language: str | None
    """Of the document, BCP 47 primary subtag: it chooses the text search configuration."""


@dataclass(frozen=True, slots=True)
class VectorRow:
    chunk_id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    vector: NDArray[np.float16]
    """[dimension]"""
    background_dense: float | None
    background_maxsim: float | None


@dataclass(frozen=True, slots=True)
class TokenStateRow:
    """Where the token states of a chunk lie."""

    chunk_id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    blob_key: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PartCompletedRow:
    """Part `part` of `parts` of one kind is there. When all chunk and vector parts of an order are, the order is complete."""

    document_id: UUID
    order: OrderKey
    tenant: str
    kind: PartKind
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class MentionRow:
    id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    chunk_id: UUID
    type: str
    key: str
    name: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class RelationRow:
    id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    chunk_id: UUID
    subject_type: str
    subject_key: str
    type: str
    object_type: str
    object_key: str
    weight: float
    extractor: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class ClaimRow:
    id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    chunk_id: UUID
    subject_type: str
    subject_key: str
    property: str
    value: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """A generation and, with it, its partitions of every derived table. One that is made beside another (`base`) gets its indexes when it is loaded."""

    generation: Generation
    base: str | None = None
    purpose: str = "first"


@dataclass(frozen=True, slots=True)
class GenerationBuiltRow:
    """A generation that was building can answer: all below the barrier (topic → partition → next offset) is settled, its indexes are there."""

    generation: str
    barrier: dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class LiveGenerationRow:
    """The generation that answers. The first one becomes live by being created. `decided_at` is the decision's offset: an earlier one changes nothing."""

    generation: str
    decided_at: int = 0


@dataclass(frozen=True, slots=True)
class GenerationDroppedRow:
    """A generation that is given up; its partitions go soon after."""

    generation: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source that is read from now on."""

    spec: SourceSpec
    epoch: int


@dataclass(frozen=True, slots=True)
class SourceRemovedRow:
    source: str
    withdraw: bool


@dataclass(frozen=True, slots=True)
class SourceResetRow:
    source: str
    reset: SequenceReset


@dataclass(frozen=True, slots=True)
class ErasureRequestRow:
    """A request for erasure."""

    receipt_id: UUID
    tenant: str
    scope: str
    name: str
    requested_at: datetime


@dataclass(frozen=True, slots=True)
class KeysDestroyedRow:
    """Keys that are not to open anything any more."""

    tenant: str
    keys: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class ErasureReceiptRow:
    """What an erasure removed, by place, and what remains."""

    receipt_id: UUID
    documents: int
    removed: dict[str, int]
    events: int
    method: str
    remains: tuple[str, ...]
    raw_until: datetime | None
    completed_at: datetime


@dataclass(frozen=True, slots=True)
class RunRow:
    """A question as it came; `response` stays None until it is answered."""

    run_id: UUID
    tenant: str
    kind: str
    request: dict[str, Any] | None
    received_at: datetime | None
    generation: str | None
    response: dict[str, Any] | None
    answered_at: datetime | None
    candidates: list[dict[str, Any]]
    numbers: dict[str, Any]
    basis: dict[str, Any] | None = None
    asked_by: str | None = None


@dataclass(frozen=True, slots=True)
class FeedbackRow:
    """What somebody said of an answer, with the passages that were judged."""

    feedback_id: UUID
    tenant: str
    given_at: datetime
    run_id: UUID | None
    query: str | None
    useful: bool | None
    judgements: tuple[GradedPassage, ...]
    corrected_answer: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An administrative act."""

    audit_id: UUID
    tenant: str
    at: datetime
    who: str
    role: str
    what: str
    subject: str | None
    request_id: str | None
    outcome: str


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    event_id: UUID
    stage: str
    generation: str | None
    buried_type: str | None
    tenant: str | None
    document_id: UUID | None
    topic: str
    partition: int
    offset: int
    code: str
    detail: str
    remedy: str
    traceback: str | None
    attempts: int
    record: BlobRef | None
    producer_event_id: str | None
    producer_source: str | None
    dead_lettered_at: datetime
    headers: BlobRef | None = None
    appended_at: datetime | None = None
    document_summary: DocumentSummary | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterClosedRow:
    """A dead letter that nothing is left to do about."""

    event_id: UUID
    stage: str
    generation: str | None
    how: str
    reason: str
    closed_at: datetime


Row = (
    DocumentRow
    | WithdrawalRow
    | AmendmentRow
    | TextRow
    | ParentRow
    | ChildRow
    | VectorRow
    | TokenStateRow
    | PartCompletedRow
    | MentionRow
    | RelationRow
    | ClaimRow
    | GenerationRow
    | GenerationBuiltRow
    | LiveGenerationRow
    | SourceRow
    | SourceRemovedRow
    | SourceResetRow
    | GenerationDroppedRow
    | ErasureRequestRow
    | KeysDestroyedRow
    | ErasureReceiptRow
    | RunRow
    | FeedbackRow
    | AuditRow
    | DeadLetterRow
    | DeadLetterClosedRow
)
