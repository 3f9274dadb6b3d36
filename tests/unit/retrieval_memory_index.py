"""A corpus in memory that implements the ports of `schemas.ports.search`.

It has exact BM25, exact cosine and a graph of names; `tests/contract/test_search.py` tests it.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import snowballstemmer
from numpy.typing import NDArray

import schemas.ids
from retrieval.question.stated_filters import fold_document_name
from retrieval.question.words import FUNCTION_WORDS, split_words, stem_word
from retrieval.ranking.fusion import FusedCandidate
from retrieval.ranking.passages import ContextPassage, RankedParent
from schemas.channels import DEFAULT_EF_SEARCH
from schemas.citations import GraphEvidence
from schemas.facts import Fact
from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id, make_entity_id
from schemas.ports.search import (
    ChildStates,
    ChunkView,
    EntityAlias,
    EntityGraph,
    EntitySeed,
    GraphEdge,
    GraphWalk,
    Hit,
    LexicalHits,
    NamedDocument,
    ParentView,
    RankingFacts,
    SnapshotVersion,
)
from schemas.principals import ReaderScope
from schemas.questions import Filters
from schemas.values import BlockKind
from sql.index.generations import unknown_generation_error
from sql.index.lexical import resolve_text_search_config


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
    """A document whose parents are lists of children.

    The text of a child follows that of the previous one in the Markdown, after `separator`.
    """

    external_id: str
    parents: Sequence[Sequence[IndexedChild]]
    title: str | None = None
    language: str | None = "en"
    names: Sequence[str] = ()
    tenant: str = "default"
    collection: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    document_date: date | None = None
    readers: Sequence[str] | None = None
    separator: str = "\n\n"
    warning_codes: Sequence[str] = ()

    def matches(self, filters: Filters) -> bool:
        return (
            (not filters.document_ids or make_document_id(self) in filters.document_ids)
            and (not filters.collections or self.collection in filters.collections)
            and set(filters.tags) <= set(self.tags)
            and (not filters.external_ids or self.external_id in filters.external_ids)
            and (not filters.languages or self.language in filters.languages)
            and (filters.date_from is None or self.dated >= filters.date_from)
            and (filters.date_to is None or self.dated <= filters.date_to)
            and all(self.metadata.get(key) == value for key, value in filters.metadata.items())
        )

    @property
    def dated(self) -> date:
        return self.document_date or date(2026, 1, 1)

    def is_readable(self, readers: ReaderScope) -> bool:
        return readers is None or self.readers is None or bool(set(readers) & set(self.readers))


def make_document_id(document: IndexedDocument) -> UUID:
    return schemas.ids.make_document_id(document.tenant, "", document.external_id)


_LEAD = re.compile(r"[#>*_\s]*([^(),;:?!\n]{2,80}?)\s*(?:[(,\n]|\s(?:is|was|are|were|é|foi)\s)")


# As in the query `named_documents`.
_NO_TITLE = r"^$|^\S*[._0-9]\S*$|\.[a-z]{2,4}[0-9]?$"


def _list_names(view: ChunkView) -> set[str]:
    title = view.prefix.split("\n")[0].split(" > ")[0]
    lead = _LEAD.match(view.text[:160])
    names = [
        title,
        re.sub(r"\s*\([^()]*\)\s*$", "", title),
        re.sub(r"\.[a-z]{2,4}[0-9]?$", "", title),
        lead[1] if lead and re.search(_NO_TITLE, title, re.IGNORECASE) else "",
    ]
    return {key for key in map(fold_document_name, names) if len(key) > 1}


@dataclass
class MemoryIndex:
    """Both `SearchIndex` and `IndexSnapshot`. `others` are further generations by name.

    `channel_errors` maps a call to the error it raises.
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

    predicate: str = "knows"
    aliases: list[EntityAlias] = field(default_factory=list)
    stated_aliases: list[tuple[UUID, EntityAlias]] = field(default_factory=list)
    """Document that states the alias, and the alias."""
    facts: dict[str, Sequence[Fact]] = field(default_factory=dict)
    others: dict[str, MemoryIndex] = field(default_factory=dict)
    readers: ReaderScope = None

    def __post_init__(self) -> None:
        self._documents: dict[UUID, IndexedDocument] = {}
        self._configurations: dict[UUID, str] = {}
        self._vectors: dict[UUID, NDArray[np.float32]] = {}
        self._mentions: dict[str, set[UUID]] = defaultdict(set)
        self._relations: list[tuple[UUID, str, str, float]] = []

    def add(self, document: IndexedDocument) -> UUID:
        """Index a document, in place of its earlier revision."""
        document_id, place, ordinal = make_document_id(document), 0, 0
        self.remove(document_id)
        self._documents[document_id] = document
        pieces: list[str] = []
        for number, children in enumerate(document.parents):
            parent_id = content_id("parent", document_id, number)
            start = place
            for child in children:
                self._add_child(document, document_id, parent_id, child, place, ordinal)
                pieces.append(child.text)
                place += len(child.text) + len(document.separator)
                ordinal += 1
            text = document.separator.join(child.text for child in children)
            self.parent_views[parent_id] = ParentView(
                parent_id,
                document_id,
                text,
                f"Part {number + 1}",
                start,
                start + len(text),
                [number + 1],
                len(text) // 4,
                number,
                document.warning_codes,
            )
        self.markdown[document_id] = document.separator.join(pieces)
        return document_id

    async def find_erased(self, documents: Sequence[UUID]) -> list[UUID]:
        return [document for document in documents if document not in self._documents]

    def remove(self, document_id: UUID) -> None:
        chunk_ids = {
            view.chunk_id for view in self.views.values() if view.document_id == document_id
        }
        for chunk_id in chunk_ids:
            del self.views[chunk_id]
            self._vectors.pop(chunk_id, None)
        for mentioned in self._mentions.values():
            mentioned -= chunk_ids
        self._relations = [one for one in self._relations if one[0] != document_id]

    def add_mention(self, chunk_id: UUID, name: str) -> None:
        self._mentions[name].add(chunk_id)

    def add_relation(self, document_id: UUID, subject: str, object_: str, weight: float) -> None:
        self._relations.append((document_id, subject, object_, weight))

    def _add_child(
        self,
        document: IndexedDocument,
        document_id: UUID,
        parent_id: UUID,
        child: IndexedChild,
        place: int,
        ordinal: int,
    ) -> None:
        chunk_id = content_id("child", document_id, ordinal)
        configuration = resolve_text_search_config(document.language)
        prefix = child.prefix or (document.title or "")
        positions = _lexeme_positions(f"{prefix}\n{child.text}", configuration)
        self.views[chunk_id] = ChunkView(
            chunk_id,
            parent_id,
            document_id,
            (1, ordinal),
            1,
            document.external_id,
            document.title,
            f"file:///{document.external_id}",
            document.language,
            child.kind,
            child.text,
            prefix,
            place,
            place + len(child.text),
            child.spans or [{"char_start": place, "char_end": place + len(child.text), "page": 1}],
            ordinal,
            positions,
            child.states,
        )
        self._configurations[chunk_id] = configuration
        if child.vector is not None:
            self._vectors[chunk_id] = child.vector
        for name in document.names:
            if name.lower() in child.text.lower():
                self.add_mention(chunk_id, name.lower())

    @asynccontextmanager
    async def open_snapshot(
        self, generation: str | None = None, readers: ReaderScope = None
    ) -> AsyncIterator[MemoryIndex]:
        self._record_call("snapshot")
        found = self if generation in (None, self.generation.name) else self.others.get(generation)
        if found is None:
            raise unknown_generation_error(generation or "")
        snapshot = copy(found)
        snapshot.readers = readers
        yield snapshot

    async def check_unchanged(self, versions: Sequence[SnapshotVersion]) -> list[bool]:
        if "unchanged" in self.channel_errors:
            raise self.channel_errors["unchanged"]
        return [standing.state == self.state for standing in versions]

    def _record_call(self, call: str) -> None:
        self.call_counts[call] += 1
        if call in self.channel_errors:
            raise self.channel_errors[call]

    def _may_read(self, view: ChunkView | ParentView) -> bool:
        return self._documents[view.document_id].is_readable(self.readers)

    def _list_chunks(self, tenant: str) -> list[ChunkView]:
        return [
            view
            for view in self.views.values()
            if self._documents[view.document_id].tenant == tenant
        ]

    async def search_lexical(
        self, tenant: str, text: str, *, language: str | None, filters: Filters, k: int, budget: int
    ) -> LexicalHits:
        self._record_call("lexical")
        scores: dict[UUID, float] = defaultdict(float)
        idfs: dict[str, dict[str, float]] = {}
        frequencies: dict[str, int] = {}
        by_configuration: dict[str, list[ChunkView]] = defaultdict(list)
        for view in self._list_chunks(tenant):
            by_configuration[self._configurations[view.chunk_id]].append(view)
        own = _lexeme_positions(text, resolve_text_search_config(language))
        topical = {position for positions in own.values() for position in positions}
        for configuration, chunks in by_configuration.items():
            # The question's own stop words count in no configuration, unless it has nothing else.
            lexemes = [
                lexeme
                for lexeme, positions in _lexeme_positions(text, configuration).items()
                if not topical or topical.intersection(positions)
            ]
            df = {lexeme: sum(lexeme in chunk.positions for chunk in chunks) for lexeme in lexemes}
            frequencies[configuration] = sum(df.values())
            idfs[configuration] = {
                lexeme: math.log(1 + (len(chunks) - df[lexeme] + 0.5) / (df[lexeme] + 0.5))
                for lexeme in lexemes
            }
            for chunk in chunks:
                length = sum(map(len, chunk.positions.values()))
                for lexeme, idf in idfs[configuration].items():
                    if frequency := len(chunk.positions.get(lexeme, ())):
                        scores[chunk.chunk_id] += (
                            idf * self.generation.config.lexical.compute_weight(frequency, length)
                        )
        return LexicalHits(
            self._top_hits(tenant, scores, filters, k),
            {name: idfs[name] for name in sorted(idfs, key=lambda name: -frequencies[name])},
            "exact" if self.exactness == "exact" else "bounded",
        )

    async def search_semantic(
        self,
        tenant: str,
        vector: NDArray[np.float32],
        *,
        filters: Filters,
        k: int,
        ef_search: int = DEFAULT_EF_SEARCH,
    ) -> Sequence[Hit]:
        self._record_call("semantic")
        scores = {
            chunk_id: float(row @ vector / (np.linalg.norm(row) * np.linalg.norm(vector) or 1.0))
            for chunk_id, row in self._vectors.items()
        }
        return self._top_hits(tenant, scores, filters, k)

    async def find_named_documents(
        self, tenant: str, keys: Sequence[str], *, filters: Filters, limit: int
    ) -> Sequence[NamedDocument]:
        self._record_call("names")
        return sorted(
            (
                NamedDocument(key, view.document_id, view.chunk_id)
                for view in self._list_chunks(tenant)
                if view.ordinal == 0
                and self._may_read(view)
                and self._documents[view.document_id].matches(filters)
                for key in _list_names(view) & set(keys)
            ),
            key=lambda named: (named.key, named.document_id),
        )[:limit]

    async def link_entities(self, tenant: str, keys: Sequence[str]) -> Sequence[EntitySeed]:
        self._record_call("link")
        return [EntitySeed("name", key, 1.0) for key in keys if self._find_mentions(tenant, key)]

    async def resolve_seeds(
        self, tenant: str, seeds: Sequence[EntitySeed]
    ) -> Sequence[tuple[UUID, str]]:
        return [(make_entity_id(tenant, seed.type, seed.key), seed.key) for seed in seeds]

    async def find_aliases(self, tenant: str, keys: Sequence[str]) -> Sequence[EntityAlias]:
        self._record_call("aliases")
        return [
            alias
            for alias in self.aliases
            if alias.key in keys and self._find_mentions(tenant, alias.entity_key)
        ]

    async def find_stated_aliases(
        self, tenant: str, keys: Sequence[str], *, documents: Sequence[UUID], filters: Filters
    ) -> Sequence[EntityAlias]:
        self._record_call("stated")
        return [
            alias
            for document_id, alias in self.stated_aliases
            if alias.key in keys
            and (
                document_id in documents
                if documents
                else self._documents[document_id].matches(filters)
            )
        ]

    async def find_similar_names(
        self, tenant: str, names: Sequence[str], is_similar: Callable[[str, str], bool]
    ) -> Sequence[EntityAlias]:
        self._record_call("similar")
        texts = " ".join(view.text.lower() for view in self._list_chunks(tenant))
        return [
            EntityAlias(name, name, key, "name", key.title(), name in texts)
            for name in names
            if name not in self._mentions
            for key in self._mentions
            if key[:3] == name[:3] and is_similar(name, key) and self._find_mentions(tenant, key)
        ]

    def _find_mentions(self, tenant: str, name: str) -> list[UUID]:
        return [
            view.chunk_id
            for view in self._list_chunks(tenant)
            if view.chunk_id in self._mentions.get(name, ()) and self._may_read(view)
        ]

    async def search_facts(
        self, tenant: str, stems: Sequence[str], now: datetime, limit: int
    ) -> Sequence[Fact]:
        return [
            fact
            for fact in self.facts.get(tenant, ())
            if fact.status == "approved"
            and (fact.expires_at is None or fact.expires_at > now)
            and (self.readers is None or fact.readers is None or {*self.readers} & {*fact.readers})
            and {stem_word(word) for word in split_words(fact.statement)} & {*stems}
        ][:limit]

    async def search_graph(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        walk: GraphWalk,
        *,
        filters: Filters,
        k: int,
    ) -> Sequence[Hit]:
        self._record_call("graph")
        entities: dict[str, float] = defaultdict(float)
        reached = [(seed.key, seed.weight) for seed in seeds]
        for hop in range(walk.hops + 1):
            for name, score in reached if hop >= walk.min_hops else ():
                entities[name] += score
            reached = [
                (neighbor, score * weight * walk.decay)
                for name, score in reached
                for neighbor, weight in self._list_neighbors(tenant, name, walk.fan_out)
            ]
        scores: dict[UUID, float] = defaultdict(float)
        for name, score in entities.items():
            for chunk_id in self._find_mentions(tenant, name):
                scores[chunk_id] += score
        return self._top_hits(tenant, scores, filters, k)

    async def fetch_entity_graph(
        self,
        tenant: str,
        seeds: Sequence[EntitySeed],
        walk: GraphWalk,
        *,
        filters: Filters,
    ) -> EntityGraph:
        self._record_call("entity_graph")

        def list_mentions(name: str) -> list[UUID]:
            return [
                chunk_id
                for chunk_id in self._find_mentions(tenant, name)
                if self._documents[self.views[chunk_id].document_id].matches(filters)
            ]

        def list_shared(name: str) -> list[str]:
            counts = Counter(
                other
                for chunk_id in sorted(list_mentions(name))[: walk.fan_out]
                for other in sorted(self._mentions)
                if other != name and chunk_id in self._mentions[other]
            )
            return [other for other, _ in counts.most_common(walk.fan_out)]

        names = [seed.key for seed in seeds]
        for _ in range(walk.hops):
            related = [
                other
                for name in names
                for other, _ in self._list_neighbors(tenant, name, walk.fan_out)
            ]
            shared = [other for name in names for other in list_shared(name)]
            names = list(dict.fromkeys([*names, *related, *shared]))
        ids = {name: make_entity_id(tenant, "name", name) for name in names}
        pairs = {
            (min(name, other), max(name, other)): weight
            for name in names
            for other, weight in self._list_neighbors(tenant, name, walk.fan_out)
            if other in ids and other != name
        }
        relations = [
            GraphEdge(ids[name], ids[other], None, weight)
            for (name, other), weight in sorted(pairs.items())
        ]
        mentions = [
            GraphEdge(ids[name], chunk_id, self.views[chunk_id].document_id, 1.0)
            for name in names
            for chunk_id in list_mentions(name)
        ]
        return EntityGraph({ids[seed.key]: seed.weight for seed in seeds}, [*relations, *mentions])

    async def search_graph_nodes(
        self,
        tenant: str,
        *,
        entities: Mapping[UUID, float],
        chunks: Mapping[UUID, float],
        filters: Filters,
        k: int,
    ) -> Sequence[Hit]:
        self._record_call("graph_nodes")
        scores: dict[UUID, float] = defaultdict(float, chunks)
        for name in self._mentions:
            if (score := entities.get(make_entity_id(tenant, "name", name))) is not None:
                for chunk_id in self._find_mentions(tenant, name):
                    scores[chunk_id] += score
        return self._top_hits(tenant, scores, filters, k)

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
        self._record_call("graph_evidence")
        numbers = {seed.key: n for n, seed in enumerate(seeds)}
        neighbors: dict[str, set[str]] = defaultdict(set)
        for key in numbers:
            for name, _ in self._list_neighbors(tenant, key, fan_out):
                neighbors[name].add(key)
        rows = []
        for document_id, subject, object_, weight in self._relations:
            document, ends = self._documents[document_id], {subject, object_}
            reached = {name for name in ends if name in numbers or name in neighbors}
            hop = 1 if ends & numbers.keys() else 2
            if document.tenant != tenant or not document.is_readable(self.readers):
                continue
            if not reached or hop > hops or not document.matches(filters):
                continue
            links = 1000 * (ends <= numbers.keys()) + max(
                (len(neighbors[name]) for name in ends - numbers.keys() if hop == 1), default=0
            )
            rows += [
                (-links, hop, -weight, self._build_evidence(chunk, subject, object_, numbers, hop))
                for chunk in self._list_chunks(tenant)
                if chunk.document_id == document_id
                and all(name in chunk.text.lower() for name in ends)
            ]
        rows.sort(key=lambda row: row[:3])
        return [
            row.model_copy(update={"predicate": self.predicate, "weight": -weight})
            for _, _, weight, row in rows[:limit]
        ]

    def _build_evidence(
        self, chunk: ChunkView, subject: str, object_: str, numbers: Mapping[str, int], hop: int
    ) -> GraphEvidence:
        def find(name: str) -> tuple[int, int]:
            start = chunk.char_start + chunk.text.lower().index(name)
            return start, start + len(name)

        return GraphEvidence(
            kind="relation",
            hop=hop,
            predicate="knows",
            weight=0.0,
            subject_id=content_id("entity", subject),
            object_id=content_id("entity", object_),
            subject_seed=numbers.get(subject),
            object_seed=numbers.get(object_),
            subject_span=find(subject),
            object_span=find(object_),
            document_id=chunk.document_id,
            parent_id=chunk.parent_id,
            chunk_id=chunk.chunk_id,
            char_start=chunk.char_start,
            char_end=chunk.char_end,
        )

    def _list_neighbors(self, tenant: str, name: str, fan_out: int) -> list[tuple[str, float]]:
        """Return the heaviest relations of each direction."""
        relations = [
            relation
            for relation in self._relations
            if (document := self._documents[relation[0]]).tenant == tenant
            and document.is_readable(self.readers)
        ]
        outward = [
            (object_, weight) for _, subject, object_, weight in relations if subject == name
        ]
        inward = [(subject, weight) for _, subject, object_, weight in relations if object_ == name]
        return [
            neighbor
            for direction in (outward, inward)
            for neighbor in sorted(direction, key=lambda one: -one[1])[:fan_out]
        ]

    async def fetch_chunks(
        self, chunk_ids: Sequence[UUID], question: str
    ) -> Mapping[UUID, ChunkView]:
        self._record_call("chunks")
        self.chunk_reads.update(chunk_ids)
        return {
            chunk_id: self._keep_positions(self.views[chunk_id], question)
            for chunk_id in chunk_ids
            if chunk_id in self.views and self._may_read(self.views[chunk_id])
        }

    def _keep_positions(self, view: ChunkView, question: str) -> ChunkView:
        """Keep the positions of the question's lexemes only."""
        lexemes = _lexeme_positions(question, self._configurations[view.chunk_id])
        kept = {
            lexeme: positions for lexeme, positions in view.positions.items() if lexeme in lexemes
        }
        return replace(view, positions=kept)

    async def fetch_ranking_facts(
        self,
        tenant: str,
        chunk_ids: Sequence[UUID],
        seeds: Sequence[EntitySeed],
        *,
        hops: int,
        fan_out: int,
    ) -> Mapping[UUID, RankingFacts]:
        self._record_call("ranking_facts")
        distances: dict[str, int] = {}
        reached = {seed.key for seed in seeds}
        for hop in range(hops + 1):
            distances = {**dict.fromkeys(reached, hop), **distances}
            reached = {
                name for key in reached for name, _ in self._list_neighbors(tenant, key, fan_out)
            }
        readable = {view.chunk_id for view in self._list_chunks(tenant) if self._may_read(view)}
        return {
            chunk_id: self._build_facts(tenant, chunk_id, seeds, distances)
            for chunk_id in chunk_ids
            if chunk_id in readable
        }

    def _build_facts(
        self, tenant: str, chunk_id: UUID, seeds: Sequence[EntitySeed], distances: Mapping[str, int]
    ) -> RankingFacts:
        view = self.views[chunk_id]
        document = self._documents[view.document_id]
        seed_keys = {seed.key for seed in seeds}
        mentioned = {key for key in distances if chunk_id in self._mentions.get(key, ())}
        # Relations are stated in the first chunk of their document, and of one type.
        states_relation = view.ordinal == 0 and any(
            document_id == view.document_id and not seed_keys.isdisjoint((subject, object_))
            for document_id, subject, object_, _ in self._relations
        )
        collection = [document.collection] if document.collection else []
        values = (value for value in document.metadata.values() if isinstance(value, str))
        return RankingFacts(
            document.dated,
            (*document.tags, *collection, *values),
            frozenset(seed_keys & mentioned),
            min((distances[key] for key in mentioned), default=None),
            frozenset({"knows"} if states_relation else ()),
        )

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]:
        self._record_call("parents")
        return {
            parent_id: self.parent_views[parent_id]
            for parent_id in parent_ids
            if parent_id in self.parent_views and self._may_read(self.parent_views[parent_id])
        }

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]:
        self._record_call("children")
        return [
            replace(view, positions={})
            for view in self.views.values()
            if view.parent_id in set(parent_ids) and self._may_read(view)
        ]

    async def fetch_child_states(self, parent_ids: Sequence[UUID]) -> Sequence[ChildStates]:
        return [
            ChildStates(child.chunk_id, child.parent_id, child.states)
            for child in await self.fetch_children(parent_ids)
        ]

    async def find_missing_collections(self, tenant: str, names: Sequence[str]) -> Sequence[str]:
        collections = {
            document.collection
            for document in self._documents.values()
            if document.tenant == tenant and document.is_readable(self.readers)
        }
        return [name for name in names if name not in collections]

    async def count_chunks(self, tenant: str) -> int:
        self._record_call("corpus_size")
        return len(self._list_chunks(tenant))

    def _top_hits(
        self, tenant: str, scores: Mapping[UUID, float], filters: Filters, k: int
    ) -> list[Hit]:
        eligible = {
            view.chunk_id: view.document_id
            for view in self._list_chunks(tenant)
            if view.chunk_id in scores
            and self._may_read(view)
            and self._documents[view.document_id].matches(filters)
        }
        ordered = sorted(eligible, key=lambda chunk_id: (-scores[chunk_id], chunk_id))[:k]
        return [Hit(chunk_id, eligible[chunk_id], scores[chunk_id]) for chunk_id in ordered]


def _lexeme_positions(text: str, configuration: str) -> dict[str, list[int]]:
    """Return positions by lexeme. Function words advance the position, as in Postgres."""
    if configuration == "simple":
        stem, stop_words = str, frozenset[str]()
    else:
        stem = snowballstemmer.stemmer(configuration).stemWord
        stop_words = next(
            (
                words
                for language, words in FUNCTION_WORDS.items()
                if resolve_text_search_config(language) == configuration
            ),
            frozenset(),
        )
    found: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(re.findall(r"\w+", text.lower()), 1):
        if word not in stop_words:
            found[stem(word)].append(place)
    return found


def make_contexts(*texts: str) -> list[ContextPassage]:
    contexts = []
    for n, text in enumerate(texts, 1):
        index = MemoryIndex()
        index.add(IndexedDocument(f"note-{n}", [[IndexedChild(text)]], None))
        (chunk,) = index.views.values()
        parent = RankedParent(
            chunk.parent_id, chunk.document_id, 1.0 / n, FusedCandidate(chunk, 1.0, {}, {}), 1
        )
        contexts.append(ContextPassage(n, parent, index.parent_views[chunk.parent_id], (chunk,)))
    return contexts
