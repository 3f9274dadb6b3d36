"""The ports that a reaction may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from schemas.events import (
    CollectionDeleted,
    CollectionDeletionRequested,
    ErasureCompleted,
    ErasureRequested,
)
from schemas.generations import CollectionProcessing, Generation
from schemas.ports.engines import (
    BlobStore,
    Chunker,
    Embedder,
    Extractor,
    Fetcher,
    LanguageDetector,
    Parser,
)
from schemas.ports.ledger import Memo
from schemas.topics import Position


class Eraser(Protocol):
    async def erase(self, request: ErasureRequested) -> ErasureCompleted:
        """Erase everything except what the receipt lists as remaining.

        Idempotent: a repeated call resumes the erasure.
        """


class CollectionDeleter(Protocol):
    async def delete(
        self, request: CollectionDeletionRequested, received_until: datetime
    ) -> CollectionDeleted | None:
        """Withdraw the documents that the log had received by this time.

        Returns None if the deletion is complete already. Idempotent: a repeated call resumes it.
        """


ANY_SOURCE = "*"


@dataclass(frozen=True, slots=True)
class IngressLimits:
    """Limits of ingress. Sizes are bytes."""

    max_bytes: int = 512 * 1024 * 1024
    inline_bytes: int = 700_000
    max_pages: int = 3_000
    tenants_by_source: Mapping[str, frozenset[str]] = field(
        default_factory=lambda: {ANY_SOURCE: frozenset({"default"})}
    )
    """ce_source of an external producer → tenants it may write for. ANY_SOURCE applies to sources
    without an entry.
    """
    takeover_by_source: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """ce_source → sources whose documents it may change too. ANY_SOURCE means all."""
    sources_by_topic: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Dedicated topic → the sources that must write to it, and to no other."""


@dataclass(frozen=True, slots=True)
class LatestRevision:
    """The newest revision of a document, as stored in the tables."""

    is_numbered: bool
    external_id: str | None
    order: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Admission:
    """An event about a document that ingress is about to accept."""

    tenant: str
    document_id: UUID
    event_id: UUID
    order: Sequence[int]
    is_numbered: bool
    source: str | None = None
    """The new owner; None leaves the owner."""
    allowed: Collection[str] = ()
    """Owners that the source may replace (ANY_SOURCE: any)."""


class DocumentOwners(Protocol):
    """The source that owns each document, and what ingress has admitted last about it.

    All methods raise DatabaseUnavailable.
    """

    async def fetch_owner(self, tenant: str, document_id: UUID) -> str | None: ...

    async def admit(self, admission: Admission) -> str | None:
        """Note the event as the last one admitted and its source as the owner, unless a source owns
        the document that it may not replace.

        Return the owner.
        """


class LatestRevisions(Protocol):
    async def fetch_latest(self, tenant: str, document_id: UUID) -> LatestRevision | None:
        """Return the newest revision, those included that are admitted and not projected yet."""


class CollectionSettings(Protocol):
    async def fetch_processing(self, tenant: str, collection: str) -> CollectionProcessing:
        """Return how documents of the collection are processed. Raises DatabaseUnavailable."""


@dataclass(frozen=True, slots=True)
class NewlyVisibleRevision:
    """A revision, and the event that brought it."""

    tenant: str
    document_id: UUID
    external_id: str | None
    event_id: str
    source: str
    accepted_id: UUID
    n_chunks: int


class GenerationSwitches(Protocol):
    async def fetch_newly_visible(
        self, generation: str, previous: str
    ) -> list[NewlyVisibleRevision]:
        """Return revisions that `generation` shows and `previous` never did. Raises
        DatabaseUnavailable.
        """


AssignOrder = Callable[[Position, datetime], list[int]]
"""Returns the order of an event without a sequence number, from its position and append time. The
first element is the log's epoch.
"""


ReportProgress = Callable[[int, int], Awaitable[None]]
"""Receives how many pages are done, and of how many."""


class ProgressStore(Protocol):
    def begin(self, stage: str, document_id: UUID, order: Sequence[int]) -> ReportProgress:
        """Return what stores the progress of a reaction, at most once per second and not within its
        first second. Calls raise DatabaseUnavailable.
        """


@dataclass(frozen=True, slots=True)
class StagePorts:
    """The second argument of every `react`: engines of this generation, blob store, memo."""

    generation: Generation
    blobs: BlobStore
    memo: Memo
    fetcher: Fetcher
    parser: Parser
    chunker: Chunker
    extractor: Extractor
    embedder: Embedder
    language_detector: LanguageDetector
    latest_revisions: LatestRevisions
    limits: IngressLimits
    assign_order: AssignOrder
    source_epochs: dict[str, int] = field(default_factory=dict)
    progress: ProgressStore | None = None
    """Stores the progress of long reactions. Without it, none is stored."""
    parallel_extractions: int = 4
    """Passages of one part whose entities are extracted at a time."""
    owners: DocumentOwners | None = None
    """Set for stage `receive`."""
    collections: CollectionSettings | None = None
    """Set for stage `transcribe`."""
    eraser: Eraser | None = None
    """Set for stage `erase`."""
    collection_deleter: CollectionDeleter | None = None
    """Set for stage `erase`."""
    generation_switches: GenerationSwitches | None = None
    """Set for stage `announce`."""
