"""Rows that projections write. The ledger decides how a row is stored and under which generation.

Every row of a document carries `document_id` and `order`. Rows of the same kind, document, order
and id are the same row, so that writing one again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.amendments import OrderKey
from schemas.events.envelope import EventData
from schemas.values import BlobRef

PartKind = Literal["chunks", "vectors", "entities"]


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A row of one revision of a document."""

    document_id: UUID
    order: OrderKey
    tenant: str


RowT = TypeVar("RowT", bound=RevisionRow)


def copy_row(row_class: type[RowT], source: object, /, **fields: Any) -> RowT:
    """Build a row of `fields`, and of the attributes of the source that have its other names."""
    names = row_class.__dataclass_fields__.keys() - fields.keys()
    return row_class(**{name: getattr(source, name) for name in names}, **fields)


@dataclass(frozen=True, slots=True)
class DocumentRow(RevisionRow):
    """The latest accepted revision of a document. Written only if `order` is greater than the
    stored one.
    """

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
    limited_to: tuple[str, ...] | None = None
    """Reader names of the caller that requested the change; None for one without limits."""


@dataclass(frozen=True, slots=True)
class WithdrawalRow(RevisionRow):
    """Withdraw the document from `order` on. Its tombstone stays."""

    external_id: str | None
    source: str
    event_id: str
    accepted_id: UUID
    received_at: datetime
    reason: str | None
    numbered: bool = False
    limited_to: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AmendmentRow(RevisionRow):
    """Amend the document from `order` on, until a later statement about the same fields.

    See `schemas.amendments`.
    """

    fields: dict[str, Any]
    accepted_id: UUID
    received_at: datetime
    limited_to: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TextRow(RevisionRow):
    """The Markdown of a revision in one generation, inline or as a blob if large."""

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
class ParentRow(RevisionRow):
    id: UUID
    ordinal: int
    text: str
    section: str
    char_start: int
    char_end: int
    pages: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class ChildRow(RevisionRow):
    id: UUID
    parent_id: UUID
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
class VectorRow(RevisionRow):
    chunk_id: UUID
    vector: NDArray[np.float16]
    """[dimension]"""
    background_dense: float | None
    background_maxsim: float | None


@dataclass(frozen=True, slots=True)
class TokenStateRow(RevisionRow):
    """Position of a chunk's token states in a blob."""

    chunk_id: UUID
    blob_key: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PartCompletedRow(RevisionRow):
    """Part `part` of `parts` of one kind is stored.

    An order is complete when all its chunk and vector parts are stored.
    """

    kind: PartKind
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class MentionRow(RevisionRow):
    id: UUID
    chunk_id: UUID
    type: str
    key: str
    name: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class RelationRow(RevisionRow):
    id: UUID
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
class ClaimRow(RevisionRow):
    id: UUID
    chunk_id: UUID
    subject_type: str
    subject_key: str
    property: str
    value: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event that belongs to no document, such as a decision or a dead letter: its table has its
    fields.

    `offset` orders decisions: earlier ones are ignored.
    """

    data: EventData
    offset: int = 0
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """A question and its response. `response` is None until the question is answered.

    `steps` has the progress of a background run by number, `stopped` its end without an answer.
    """

    run_id: UUID
    tenant: str
    kind: str = ""
    request: dict[str, Any] | None = None
    received_at: datetime | None = None
    generation: str | None = None
    response: dict[str, Any] | None = None
    answered_at: datetime | None = None
    candidates: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    run_record: dict[str, Any] | None = None
    requested_by: str | None = None
    deadline: datetime | None = None
    steps: Mapping[str, Any] = field(default_factory=dict)
    stopped: dict[str, Any] | None = None
    process_id: UUID | None = None
    experiment: dict[str, Any] | None = None


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
    | EventRow
    | RunRow
)
