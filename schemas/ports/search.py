"""The read side of the tables. One question sees one snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.generations import Generation
from schemas.principals import Principal, ReaderScope
from schemas.questions import Filters


@dataclass(frozen=True, slots=True)
class Hit:
    """A child chunk found by a channel; higher scores are better."""

    chunk_id: UUID
    document_id: UUID
    score: float


@dataclass(frozen=True, slots=True)
class LexicalHits:
    """Scores are BM25. `idf` holds each query lexeme's weight, by text search configuration; `exactness` is `exact` when no unseen chunk could be among the best k."""

    hits: Sequence[Hit]
    idf: Mapping[str, Mapping[str, float]]
    exactness: Literal["exact", "bounded"]


@dataclass(frozen=True, slots=True)
class EntitySeed:
    """An entity that the question names."""

    type: str
    key: str
    weight: float


@dataclass(frozen=True, slots=True)
class ChunkView:
    """A child chunk with all that a result, a rerank or a citation needs."""

    chunk_id: UUID
    parent_id: UUID
    document_id: UUID
    order: tuple[int, ...]
    revision: int
    external_id: str | None
    title: str | None
    source_uri: str | None
    language: str | None
    kind: str
    text: str
    prefix: str
    char_start: int
    char_end: int
    spans: Sequence[Mapping[str, Any]]
    ordinal: int
    positions: Mapping[str, Sequence[int]]
    """Lexeme → positions in the chunk (of its prefix and text), for word pairs."""
    background_dense: float | None
    background_maxsim: float | None
    states: tuple[str, int, int] | None
    """Blob key, offset, length of its token states."""


@dataclass(frozen=True, slots=True)
class ParentView:
    parent_id: UUID
    document_id: UUID
    text: str
    section: str
    char_start: int
    char_end: int
    pages: Sequence[int]
    tokens: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class SnapshotVersion:
    """How far a tenant's index in a generation had come when it was looked at. `state` is the storage's own."""

    tenant: str
    generation: str
    state: str


class IndexSnapshot(Protocol):
    """One state of one generation, for as long as its context is open. Each method may run at the same time as the others."""

    generation: Generation
    state: str
    """Of a `Standing`."""

    async def search_lexical(self, tenant: str, text: str, *, language: str | None, filters: Filters, k: int, budget: int) -> LexicalHits:
        """BM25 over title, headings and text, in each document's own language. Terms beyond the budget enter as conjunctions; the budget widens once when an unseen chunk could still win."""

    async def search_semantic(self, tenant: str, vector: NDArray[np.float32], *, filters: Filters, k: int) -> Sequence[Hit]:
        """Cosine similarity; exact below 20,000 vectors."""

    async def link_entities(self, tenant: str, keys: Sequence[str]) -> Sequence[EntitySeed]:
        """The visible entities whose folded names are among `keys`."""

    async def search_graph(
        self, tenant: str, seeds: Sequence[EntitySeed], *, hops: int, fan_out: int, decay: float, filters: Filters, k: int
    ) -> Sequence[Hit]: ...

    async def fetch_chunks(self, chunk_ids: Sequence[UUID]) -> Mapping[UUID, ChunkView]: ...

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]: ...

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]: ...

    async def find_missing_collections(self, tenant: str, names: Sequence[str]) -> Sequence[str]:
        """Of these names, those that no document has."""

    async def count_chunks(self, tenant: str) -> int:
        """Visible chunks of a tenant, as the lexical statistics count them."""


class SearchIndex(Protocol):
    def open_snapshot(self, generation: str | None = None, readers: ReaderScope = None) -> AbstractAsyncContextManager[IndexSnapshot]:
        """Of the live generation, or the named one, with the documents that `names` may read (None: all). Raises NotFound."""


class IndexChanges(Protocol):
    async def check_unchanged(self, versions: Sequence[SnapshotVersion]) -> list[bool]:
        """For each, whether a question would still see exactly the same. Nothing that has committed is overlooked. Raises DatabaseUnavailable."""


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The Markdown of a revision, inline or by blob key."""

    document_id: UUID
    markdown: str | None
    blob_key: str | None


class DocumentCatalog(Protocol):
    """What is known of documents, for API and command line: plain dictionaries in the shapes of `interfaces.md`. What the caller may not read is not there."""

    async def find_documents(
        self, caller: Principal, *, external_id: str | None, collection: str | None, tag: str | None, state: str | None, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]: ...

    async def fetch_document(self, caller: Principal, document_id: UUID) -> dict[str, Any] | None: ...

    async def fetch_revisions(self, caller: Principal, document_id: UUID, *, after: int | None, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        """The newest first; `after` is a revision's number."""

    async def fetch_chunks(self, caller: Principal, document_id: UUID, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]: ...

    async def fetch_text(self, caller: Principal, document_id: UUID) -> DocumentText | None: ...

    async def fetch_status(
        self, caller: Principal, *, document_id: UUID | None = None, job_id: UUID | None = None, event_id: str | None = None, source: str | None = None
    ) -> dict[str, Any] | None: ...

    async def fetch_counts(self, tenant: str | None) -> dict[str, int]: ...

    async def filter_readable(self, caller: Principal, document_ids: Collection[UUID]) -> set[UUID]: ...
