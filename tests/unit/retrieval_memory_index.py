"""A corpus in memory that obeys the ports of `schemas.ports.search`: exact BM25 and cosine, a graph
of shared names.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import snowballstemmer
from numpy.typing import NDArray

from retrieval.words import extract_content_words
from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id
from schemas.ports.search import (
    ChunkView,
    EntitySeed,
    Hit,
    LexicalHits,
    ParentView,
    SnapshotVersion,
)
from schemas.principals import ReaderScope
from schemas.questions import Filters
from schemas.values import BlockKind

TEXT_SEARCH_CONFIGS = {"en": "english", "pt": "portuguese"}
_STEMMERS = {name: snowballstemmer.stemmer(name) for name in TEXT_SEARCH_CONFIGS.values()}


@dataclass(frozen=True)
class IndexedChild:
    text: str
    kind: BlockKind = "paragraph"
    vector: NDArray[np.float32] | None = None
    states: tuple[str, int, int] | None = None
    prefix: str = ""
    spans: Sequence[Mapping[str, object]] = ()
    background: float | None = None


@dataclass(frozen=True)
class IndexedDocument:
    """Parents are lists of children; a child's text follows the last one's in the Markdown, two
    line ends between.
    """

    external_id: str
    parents: Sequence[Sequence[IndexedChild]]
    title: str | None = None
    language: str | None = "en"
    names: Sequence[str] = ()


def make_document_id(external_id: str) -> UUID:
    return content_id("document", "default", "", external_id)


@dataclass
class MemoryIndex:
    """Both `SearchIndex` and `IndexSnapshot`. `broken` maps a channel to the error it raises;
    `asked` counts calls, `read` how often each chunk was.
    """

    generation: Generation = field(
        default_factory=lambda: Generation(
            name="g1", config=IndexConfig(), how={}, topics={}, state="live"
        )
    )
    state: str = "1"
    channel_errors: dict[str, Exception] = field(default_factory=dict)
    call_counts: Counter[str] = field(default_factory=Counter)
    chunk_reads: Counter[UUID] = field(default_factory=Counter)
    exactness: str = "exact"
    views: dict[UUID, ChunkView] = field(default_factory=dict)
    parent_views: dict[UUID, ParentView] = field(default_factory=dict)
    markdown: dict[UUID, str] = field(default_factory=dict)
    collections: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._postings: dict[str, dict[str, list[tuple[UUID, int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._lengths: dict[UUID, int] = {}
        self._counts: Counter[str] = Counter()
        self._vectors: list[tuple[UUID, NDArray[np.float32]]] = []
        self._matrix: NDArray[np.float32] | None = None
        self._names: dict[str, set[UUID]] = defaultdict(set)

    def add(self, document: IndexedDocument) -> UUID:
        doc, place, ordinal = make_document_id(document.external_id), 0, 0
        pieces: list[str] = []
        for number, children in enumerate(document.parents):
            parent_id = content_id("parent", doc, number)
            start = place
            for child in children:
                self._add_child(document, doc, parent_id, child, place, ordinal)
                pieces.append(child.text)
                place += len(child.text) + 2
                ordinal += 1
            text = "\n\n".join(child.text for child in children)
            self.parent_views[parent_id] = ParentView(
                parent_id,
                doc,
                text,
                f"Part {number + 1}",
                start,
                start + len(text),
                [number + 1],
                len(text) // 4,
                number,
            )
        self.markdown[doc] = "\n\n".join(pieces)
        self._matrix = None
        return doc

    def _add_child(
        self,
        document: IndexedDocument,
        doc: UUID,
        parent_id: UUID,
        child: IndexedChild,
        place: int,
        ordinal: int,
    ) -> None:
        chunk_id = content_id("child", doc, ordinal)
        configuration = TEXT_SEARCH_CONFIGS.get(document.language or "", "english")
        prefix = child.prefix or (document.title or "")
        positions = _lexeme_positions(f"{prefix}\n{child.text}", configuration, document.language)
        self.views[chunk_id] = ChunkView(
            chunk_id, parent_id, doc, (1, ordinal), 1, document.external_id, document.title, f"file:///{document.external_id}", document.language,
            child.kind, child.text, prefix, place, place + len(child.text),
            child.spans or [{"char_start": place, "char_end": place + len(child.text), "page": 1}],
            ordinal, positions, child.background, None, child.states,
        )  # fmt: skip
        self._lengths[chunk_id] = sum(map(len, positions.values()))
        self._counts[configuration] += 1
        for lexeme, at in positions.items():
            self._postings[configuration][lexeme].append((chunk_id, len(at)))
        if child.vector is not None:
            self._vectors.append((chunk_id, child.vector))
        for name in document.names:
            if name.lower() in child.text.lower():
                self._names[name.lower()].add(chunk_id)

    @asynccontextmanager
    async def open_snapshot(
        self, generation: str | None = None, readers: ReaderScope = None
    ) -> AsyncIterator[MemoryIndex]:
        self.call_counts["snapshot"] += 1
        yield copy(self)

    async def check_unchanged(self, versions: Sequence[SnapshotVersion]) -> list[bool]:
        if "unchanged" in self.channel_errors:
            raise self.channel_errors["unchanged"]
        return [standing.state == self.state for standing in versions]

    def _record_call(self, call: str) -> None:
        self.call_counts[call] += 1
        if call in self.channel_errors:
            raise self.channel_errors[call]

    async def search_lexical(
        self, tenant: str, text: str, *, language: str | None, filters: Filters, k: int, budget: int
    ) -> LexicalHits:
        self._record_call("lexical")
        scores: dict[UUID, float] = defaultdict(float)
        idfs: dict[str, dict[str, float]] = {}
        for configuration, postings in self._postings.items():
            count = sum(self._counts.values())
            lexemes = {
                lexeme
                for lexeme in _lexeme_positions(text, configuration, None)
                if lexeme in postings
            }
            idfs[configuration] = {
                lexeme: math.log(
                    1 + (count - len(postings[lexeme]) + 0.5) / (len(postings[lexeme]) + 0.5)
                )
                for lexeme in lexemes
            }
            for lexeme, idf in idfs[configuration].items():
                for chunk_id, frequency in postings[lexeme]:
                    scores[chunk_id] += idf * self.generation.config.lexical.compute_weight(
                        frequency, self._lengths[chunk_id]
                    )
        return LexicalHits(
            self._top_hits(scores, filters, k),
            idfs,
            "exact" if self.exactness == "exact" else "bounded",
        )

    async def search_semantic(
        self, tenant: str, vector: NDArray[np.float32], *, filters: Filters, k: int
    ) -> Sequence[Hit]:
        self._record_call("semantic")
        if not self._vectors:
            return []
        if self._matrix is None:
            self._matrix = np.stack([row for _, row in self._vectors])
        cosines = self._matrix @ vector
        return self._top_hits(
            dict(zip((chunk_id for chunk_id, _ in self._vectors), cosines.tolist(), strict=True)),
            filters,
            k,
        )

    async def link_entities(self, tenant: str, keys: Sequence[str]) -> Sequence[EntitySeed]:
        self._record_call("link")
        return [EntitySeed("name", key, 1.0) for key in keys if key in self._names]

    async def search_graph(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
        decay: float,
        filters: Filters,
        k: int,
    ) -> Sequence[Hit]:
        self._record_call("graph")
        scores: dict[UUID, float] = defaultdict(float)
        for seed in seeds:
            for chunk_id in self._names[seed.key]:
                scores[chunk_id] += seed.weight
        return self._top_hits(scores, filters, k)

    async def fetch_chunks(self, chunk_ids: Sequence[UUID]) -> Mapping[UUID, ChunkView]:
        self._record_call("chunks")
        self.chunk_reads.update(chunk_ids)
        return {chunk_id: self.views[chunk_id] for chunk_id in chunk_ids if chunk_id in self.views}

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]:
        self._record_call("parents")
        return {parent_id: self.parent_views[parent_id] for parent_id in parent_ids}

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]:
        self._record_call("children")
        wanted = set(parent_ids)
        return [view for view in self.views.values() if view.parent_id in wanted]

    async def find_missing_collections(self, tenant: str, names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if name not in self.collections]

    async def count_chunks(self, tenant: str) -> int:
        self._record_call("corpus_size")
        return len(self.views)

    def _top_hits(self, scores: Mapping[UUID, float], filters: Filters, k: int) -> list[Hit]:
        allowed = {
            chunk_id: score
            for chunk_id, score in scores.items()
            if not filters.external_ids or self.views[chunk_id].external_id in filters.external_ids
        }
        ordered = sorted(allowed, key=lambda chunk_id: (-allowed[chunk_id], chunk_id))[:k]
        return [
            Hit(chunk_id, self.views[chunk_id].document_id, allowed[chunk_id])
            for chunk_id in ordered
        ]


def _lexeme_positions(text: str, configuration: str, language: str | None) -> dict[str, list[int]]:
    """Lexeme → positions; function words count as places but are no lexemes, as in Postgres."""
    stem = _STEMMERS[configuration].stemWord
    topical = set(
        extract_content_words(
            text, {value: key for key, value in TEXT_SEARCH_CONFIGS.items()}[configuration]
        )
    )
    found: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(re.findall(r"\w+", text.lower()), 1):
        if word in topical:
            found[stem(word)].append(place)
    return found
