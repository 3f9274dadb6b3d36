"""Rows that projections write. The ledger decides how a row is stored and under which generation.

Every row of a document carries `document_id` and `order`. Rows of the same kind, document, order
and id are the same row, so that writing one again changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.amendments import OrderKey
from schemas.exams import Calibration, Exam
from schemas.generations import Generation
from schemas.query_rows import (
    FactDecisionRow,
    FactEventRow,
    FactRetractedRow,
    FactRow,
    FeedbackRow,
    RunRow,
)
from schemas.sources import SequenceReset, SourceSpec
from schemas.values import BlobRef, DocumentSummary

PartKind = Literal["chunks", "vectors", "entities"]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """The latest accepted revision of a document. Written only if `order` is greater than the
    stored one.
    """

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
    """The source numbers its changes. A withdrawal without a number is then ordered after the last
    change.
    """
    readers: tuple[str, ...] | None = None
    """As stated by the revision; None if it stated none."""


@dataclass(frozen=True, slots=True)
class WithdrawalRow:
    """Withdraw the document from `order` on. Its tombstone stays."""

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
    """Amend the document from `order` on, until a later statement about the same fields.

    See `schemas.amendments`.
    """

    document_id: UUID
    order: OrderKey
    tenant: str
    fields: dict[str, Any]
    accepted_id: UUID
    received_at: datetime


@dataclass(frozen=True, slots=True)
class TextRow:
    """The Markdown of a revision in one generation, inline or as a blob if large."""

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
    document_date: date | None = None
    """Found in the document."""


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
    """BCP 47 primary subtag of the document. Selects the text search configuration."""


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
    """Position of a chunk's token states in a blob."""

    chunk_id: UUID
    document_id: UUID
    order: OrderKey
    tenant: str
    blob_key: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PartCompletedRow:
    """Part `part` of `parts` of one kind is stored.

    An order is complete when all its chunk and vector parts are stored.
    """

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
    """A generation with its partitions of every derived table.

    A generation with a `base` gets its indexes after loading.
    """

    generation: Generation
    base: str | None = None
    purpose: str = "first"


@dataclass(frozen=True, slots=True)
class GenerationBuiltRow:
    """A generation is built: everything below the barrier is settled and indexed.

    `barrier` maps topic → partition → next offset.
    """

    generation: str
    barrier: dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class LiveGenerationRow:
    """Make a generation live. `decided_at` is the offset of the decision; earlier decisions are
    ignored.
    """

    generation: str
    decided_at: int = 0


@dataclass(frozen=True, slots=True)
class GenerationDroppedRow:
    """Drop a generation. Its partitions are removed soon after."""

    generation: str


@dataclass(frozen=True, slots=True)
class ExamRow:
    exam: Exam


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """`decided_at` is the offset of the decision; earlier decisions are ignored."""

    calibration: Calibration
    decided_at: int = 0


@dataclass(frozen=True, slots=True)
class EntityAliasRow:
    """`decided_at` is the offset of the decision; earlier decisions are ignored."""

    tenant: str
    entity_id: UUID
    alias: str
    is_removed: bool
    decided_at: int


@dataclass(frozen=True, slots=True)
class CollectionProfileRow:
    """Set or unset a default profile. `decided_at` is the offset of the decision; earlier decisions
    are ignored.
    """

    tenant: str
    collection: str
    default_profile: str | None
    decided_at: int = 0


@dataclass(frozen=True, slots=True)
class CollectionDeletionRow:
    deletion_id: UUID
    tenant: str
    collection: str
    requested_at: datetime


@dataclass(frozen=True, slots=True)
class CollectionDeletedRow:
    deletion_id: UUID
    completed_at: datetime


@dataclass(frozen=True, slots=True)
class SourceRow:
    """Declare a source."""

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
    receipt_id: UUID
    tenant: str
    scope: str
    name: str
    requested_at: datetime


@dataclass(frozen=True, slots=True)
class KeysDestroyedRow:
    """Destroy keys, so that their payloads can no longer be decrypted."""

    tenant: str
    keys: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class ErasureReceiptRow:
    """Receipt of an erasure: the removed data by location, and the data that remains."""

    receipt_id: UUID
    documents: int
    removed: dict[str, int]
    events: int
    method: str
    remains: tuple[str, ...]
    raw_until: datetime | None
    completed_at: datetime
    log_offset: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An administrative action."""

    audit_id: UUID
    tenant: str
    occurred_at: datetime
    actor: str
    role: str
    action: str
    subject: str | None
    request_id: str | None
    outcome: str


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    event_id: UUID
    stage: str
    generation: str | None
    original_type: str | None
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
    """Close a dead letter that needs no further action."""

    event_id: UUID
    stage: str
    generation: str | None
    resolution: str
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
    | ExamRow
    | CalibrationRow
    | EntityAliasRow
    | CollectionProfileRow
    | CollectionDeletionRow
    | CollectionDeletedRow
    | SourceRow
    | SourceRemovedRow
    | SourceResetRow
    | GenerationDroppedRow
    | ErasureRequestRow
    | KeysDestroyedRow
    | ErasureReceiptRow
    | RunRow
    | FeedbackRow
    | FactRow
    | FactDecisionRow
    | FactEventRow
    | FactRetractedRow
    | AuditRow
    | DeadLetterRow
    | DeadLetterClosedRow
)
