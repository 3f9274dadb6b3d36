"""The read side of the tables. One question reads from one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.channels import DEFAULT_EF_SEARCH
from schemas.citations import GraphEvidence
from schemas.exams import Calibration
from schemas.facts import Fact
from schemas.generations import Generation
from schemas.principals import ReaderScope
from schemas.questions import Filters


@dataclass(frozen=True, slots=True)
class Hit:
    """A child chunk found by a channel. Higher scores are better.

    `background` is the mean score of general questions with the chunk, 0 where none is known.
    """

    chunk_id: UUID
    document_id: UUID
    score: float
    background: float = 0.0


@dataclass(frozen=True, slots=True)
class LexicalHits:
    """BM25 results. `idf` has the weight of each query lexeme, by text search configuration, first
    the one whose chunks hold the lexemes most often.

    `exactness` is `exact` if no unseen chunk could be among the best k.
    """

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
class EntityAlias:
    """An alias of a visible entity, from people or from documents. `key` is normalized as document
    names are, and `entity_key` as names of entities are. `is_written`: visible texts hold the
    alias.
    """

    key: str
    alias: str
    entity_key: str
    type: str
    name: str
    is_written: bool
    kind: Literal["added", "abbreviation", "defined_term"] = "added"


@dataclass(frozen=True, slots=True)
class NamedDocument:
    """A document that has a name, such as its title, and its first chunk. `key` is normalized."""

    key: str
    document_id: UUID
    chunk_id: UUID


@dataclass(frozen=True, slots=True)
class ChunkView:
    """A child chunk with everything that a result, a rerank or a citation needs."""

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
    """Lexeme of the question → positions in the chunk (of its prefix and text).

    Empty in chunks that were read by their parents.
    """
    states: tuple[str, int, int] | None
    """Blob key, offset, length of its token states."""


@dataclass(frozen=True, slots=True)
class ChildStates:
    """Where the token states of a child chunk are: blob key, offset, length.

    `background` is the mean late-interaction score of general questions with it.
    """

    chunk_id: UUID
    parent_id: UUID
    states: tuple[str, int, int] | None
    background: float = 0.0


@dataclass(frozen=True, slots=True)
class RankingFacts:
    """Facts about a chunk and its document that fusion may weigh.

    `labels` are the tags, the collection and the textual metadata values. `seed_keys` are the seeds
    that the chunk mentions, `hop` the distance of the nearest entity in it from a seed, and
    `relation_types` the types of the relations with a seed that it states.
    """

    document_date: date | None
    labels: tuple[str, ...]
    seed_keys: frozenset[str]
    hop: int | None
    relation_types: frozenset[str]


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
    warning_codes: Sequence[str] = ()
    """Codes of the warnings about the transcription of its document."""


@dataclass(frozen=True, slots=True)
class SnapshotVersion:
    """The version of a tenant's index in a generation at a snapshot's time. `state` is opaque."""

    tenant: str
    generation: str
    state: str


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A relation of two entities, or `weight` mentions of an entity in a chunk of `document_id`."""

    entity_id: UUID
    node_id: UUID
    document_id: UUID | None
    weight: float


@dataclass(frozen=True, slots=True)
class GraphWalk:
    """How far a search follows relations from its seeds."""

    hops: int
    fan_out: int
    """Heaviest relations of an entity that are followed in each direction."""
    decay: float = 0.5
    """Share of the score that a relation passes on."""
    min_hops: int = 0
    """Relations off the seeds from which on entities count."""


@dataclass(frozen=True, slots=True)
class EntityGraph:
    """Edges around the seeds, in a stable order. `seeds` are their weights by entity id."""

    seeds: Mapping[UUID, float]
    edges: Sequence[GraphEdge]


class IndexSnapshot(Protocol):
    """One state of one generation, while its context is open. Methods may run concurrently."""

    generation: Generation
    state: str
    """The state of a `SnapshotVersion`."""

    async def search_lexical(
        self, tenant: str, text: str, *, language: str | None, filters: Filters, k: int, budget: int
    ) -> LexicalHits:
        """Score title, headings and text by BM25, in each document's own language.

        Terms beyond the budget are only searched in conjunctions. The budget widens once if an
        unseen chunk could still be among the best.
        """

    async def search_semantic(
        self,
        tenant: str,
        vector: NDArray[np.float32],
        *,
        filters: Filters,
        k: int,
        ef_search: int = DEFAULT_EF_SEARCH,
    ) -> Sequence[Hit]:
        """Search by cosine similarity; exact below `hnsw.exact_below` vectors, else with width
        `ef_search`.
        """

    async def find_named_documents(
        self, tenant: str, keys: Sequence[str], *, filters: Filters, limit: int
    ) -> Sequence[NamedDocument]:
        """Return the documents with a name among the normalized `keys`, in order of their keys.

        Names are the title, short forms of it, and the words that the text begins with.
        """

    async def link_entities(self, tenant: str, keys: Sequence[str]) -> Sequence[EntitySeed]:
        """Return the visible entities whose normalized names are among `keys`."""

    async def resolve_seeds(
        self, tenant: str, seeds: Sequence[EntitySeed]
    ) -> Sequence[tuple[UUID, str]]:
        """Return the id and the normalized name of each seed's entity, which are those of another
        one if it was merged.
        """

    async def find_aliases(self, tenant: str, keys: Sequence[str]) -> Sequence[EntityAlias]:
        """Return the aliases among the normalized `keys` that people gave to visible entities, and
        the abbreviations that documents state and people have not decided about.
        """

    async def find_stated_aliases(
        self, tenant: str, keys: Sequence[str], *, documents: Sequence[UUID], filters: Filters
    ) -> Sequence[EntityAlias]:
        """Return the aliases among the normalized `keys` that these documents state. Without
        documents, those that pass the filters count, if they are few. Aliases that people have
        decided about are left out.
        """

    async def find_similar_names(
        self, tenant: str, names: Sequence[str], is_similar: Callable[[str, str], bool]
    ) -> Sequence[EntityAlias]:
        """Return the visible entities whose normalized names are similar to one of `names`, which
        is then the alias. Only names that begin with the same three letters are compared, and
        none with the name of an entity.
        """

    async def search_graph(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        walk: GraphWalk,
        *,
        filters: Filters,
        k: int,
    ) -> Sequence[Hit]:
        """Return chunks that mention entities on the walk from the seeds."""

    async def fetch_entity_graph(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        walk: GraphWalk,
        *,
        filters: Filters,
    ) -> EntityGraph:
        """Return the entities within `walk.hops` of the seeds, their relations, and the chunks
        within the filters that mention them.

        A hop is a relation or a chunk within the filters that mentions both entities.
        """

    async def search_graph_nodes(
        self,
        tenant: str,
        *,
        entities: Mapping[UUID, float],
        chunks: Mapping[UUID, float],
        filters: Filters,
        k: int,
    ) -> Sequence[Hit]:
        """Return the chunks that mention scored entities, and the scored chunks themselves.

        Only chunks of the snapshot count: ids that a graph server returns may be outdated.
        """

    async def find_graph_evidence(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
        filters: Filters,
        found: Sequence[UUID],
        limit: int,
    ) -> Sequence[GraphEvidence]:
        """Return relations up to `hops` (1 or 2) off the seeds, and claims about the seeds.

        Relations between two seeds come first, then those over one entity between two seeds, at
        most `limit`; then as many claims that a chunk among `found` states. Each name stands in
        the chunk. The numbers of seeds are their places in `seeds`, one for each key.
        """

    async def search_facts(
        self, tenant: str, stems: Sequence[str], now: datetime, limit: int
    ) -> Sequence[Fact]:
        """Return approved facts that hold a word with one of the stems and are not expired."""

    async def fetch_chunks(
        self, chunk_ids: Sequence[UUID], question: str
    ) -> Mapping[UUID, ChunkView]: ...

    async def fetch_ranking_facts(
        self,
        tenant: str,
        chunk_ids: Sequence[UUID],
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
    ) -> Mapping[UUID, RankingFacts]:
        """Return the facts of the visible chunks of the tenant."""

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]: ...

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]: ...

    async def fetch_child_states(self, parent_ids: Sequence[UUID]) -> Sequence[ChildStates]:
        """Return where the token states of the parents' children are, in order of the text."""

    async def find_missing_collections(self, tenant: str, names: Sequence[str]) -> Sequence[str]:
        """Return the collections that no document has."""

    async def count_chunks(self, tenant: str) -> int:
        """Count the visible chunks of a tenant, as the lexical statistics count them."""


class SearchIndex(Protocol):
    def open_snapshot(
        self, generation: str | None = None, readers: ReaderScope = None
    ) -> AbstractAsyncContextManager[IndexSnapshot]:
        """Open the live or the named generation, limited to documents that `readers` may read
        (None: all).

        Raises NotFound.
        """

    async def find_erased(self, documents: Sequence[UUID]) -> list[UUID]:
        """Return those of the documents that are erased or are being erased."""


class IndexChanges(Protocol):
    async def check_unchanged(self, versions: Sequence[SnapshotVersion]) -> list[bool]:
        """Return for each version whether a query would still see exactly the same.

        Sees everything that has committed.

        Raises DatabaseUnavailable.
        """


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The Markdown of a revision, inline or by blob key."""

    document_id: UUID
    markdown: str | None
    blob_key: str | None


class CalibrationStore(Protocol):
    async def fetch(
        self, tenant: str, generation: str, scores: str | None = None
    ) -> Calibration | None:
        """Return the calibration of the generation for these scores, or for any."""
