"""Contract of `SearchIndex`, run against Postgres and against memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import log
from typing import Protocol
from uuid import UUID

import numpy as np
import pytest
import snowballstemmer

from retrieval.question.stated_filters import fold_document_name
from schemas.errors import NotFound
from schemas.generations import LexicalConfig
from schemas.ids import make_entity_id
from schemas.ports.search import (
    EntitySeed,
    GraphWalk,
    Hit,
    IndexSnapshot,
    RankingFacts,
    SearchIndex,
)
from schemas.questions import Filters
from tests.support.document_rows import (
    SampleDocument,
    activate_revision,
    insert_documents,
    insert_generation,
    insert_index_rows,
    insert_mention,
    insert_relation,
)
from tests.support.search_stack import SearchStack, open_search_stack
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex

NO_FILTERS = Filters()
Place = tuple[str, int]
"""External id and ordinal of a chunk."""


class SearchWorld(Protocol):
    search: SearchIndex

    async def add(self, *documents: SampleDocument) -> None: ...

    async def add_generation(
        self, name: str, lexical: LexicalConfig, *documents: SampleDocument
    ) -> None: ...

    async def mention(self, document: SampleDocument, ordinal: int, name: str) -> None: ...

    async def relate(
        self, document: SampleDocument, subject: str, object_: str, weight: float
    ) -> None: ...


@dataclass
class MemoryWorld:
    search: MemoryIndex = field(default_factory=MemoryIndex)

    async def add(self, *documents: SampleDocument) -> None:
        for document in documents:
            _index(self.search, document)

    async def add_generation(
        self, name: str, lexical: LexicalConfig, *documents: SampleDocument
    ) -> None:
        live = self.search.generation
        config = live.config.model_copy(update={"lexical": lexical})
        other = MemoryIndex(live.model_copy(update={"name": name, "config": config}))
        self.search.others[name] = other
        for document in documents:
            _index(other, document)

    async def mention(self, document: SampleDocument, ordinal: int, name: str) -> None:
        [chunk] = [
            view.chunk_id
            for view in self.search.views.values()
            if (view.document_id, view.ordinal) == (document.id, ordinal)
        ]
        self.search.add_mention(chunk, name)

    async def relate(
        self, document: SampleDocument, subject: str, object_: str, weight: float
    ) -> None:
        self.search.add_relation(document.id, subject, object_, weight)


def _index(index: MemoryIndex, document: SampleDocument) -> None:
    vectors = document.vectors or [None] * len(document.texts)
    parents = [
        [
            IndexedChild(
                text,
                vector=None if row is None else np.array(row, np.float32),
                prefix=document.prefix,
            )
        ]
        for text, row in zip(document.texts, vectors, strict=True)
    ]
    index.add(
        IndexedDocument(
            document.external_id,
            parents,
            language=document.language,
            tenant=document.tenant,
            collection=document.collection,
            tags=document.tags,
            metadata=document.metadata or {},
            document_date=document.document_date,
            readers=document.readers,
        )
    )


@dataclass
class PostgresWorld:
    stack: SearchStack
    entities: dict[str, UUID] = field(default_factory=dict)

    @property
    def search(self) -> SearchIndex:
        return self.stack.search

    async def add(self, *documents: SampleDocument) -> None:
        await insert_documents(self.stack.connection, *documents)

    async def add_generation(
        self, name: str, lexical: LexicalConfig, *documents: SampleDocument
    ) -> None:
        await insert_generation(self.stack.connection, name, live=False, lexical=lexical)
        for document in documents:
            await insert_index_rows(self.stack.connection, document, name)
            await activate_revision(self.stack.connection, document, name)

    async def mention(self, document: SampleDocument, ordinal: int, name: str) -> None:
        self.entities[name] = await insert_mention(
            self.stack.connection, document, ordinal, "name", name
        )

    async def relate(
        self, document: SampleDocument, subject: str, object_: str, weight: float
    ) -> None:
        await insert_relation(
            self.stack.connection,
            document,
            0,
            self.entities[subject],
            self.entities[object_],
            weight,
        )


@pytest.fixture(params=["memory", "postgres"])
def database_or_none(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "memory" else request.getfixturevalue("database")


@pytest.fixture
async def world(database_or_none: str | None) -> AsyncIterator[SearchWorld]:
    if database_or_none is None:
        yield MemoryWorld()
    else:
        async with open_search_stack(database_or_none) as stack:
            yield PostgresWorld(stack)


async def locate(snapshot: IndexSnapshot, hits: Sequence[Hit]) -> dict[Place, float]:
    views = await snapshot.fetch_chunks([hit.chunk_id for hit in hits], "")
    return {
        (views[hit.chunk_id].external_id or "", views[hit.chunk_id].ordinal): hit.score
        for hit in hits
        if hit.chunk_id in views
    }


async def search_words(
    world: SearchWorld,
    text: str,
    *,
    generation: str | None = None,
    readers: Sequence[str] | None = None,
    tenant: str = "default",
    language: str | None = "en",
    filters: Filters = NO_FILTERS,
    k: int = 20,
) -> dict[Place, float]:
    async with world.search.open_snapshot(
        generation, None if readers is None else tuple(readers)
    ) as snapshot:
        found = await snapshot.search_lexical(
            tenant, text, language=language, filters=filters, k=k, budget=5000
        )
        assert found.exactness == "exact"
        places = await locate(snapshot, found.hits)
        assert len(places) == len(found.hits), "a hit that cannot be read"
        return places


def compute_bm25(
    documents: Sequence[SampleDocument], question: str, config: LexicalConfig
) -> dict[Place, float]:
    """Compute Robertson's formula over English stems, term by term."""
    stem = snowballstemmer.stemmer("english").stemWord
    chunks = {
        (document.external_id, ordinal): Counter(map(stem, re.findall(r"\w+", text.lower())))
        for document in documents
        for ordinal, text in enumerate(document.texts)
    }
    scores: Counter[Place] = Counter()
    for term in {stem(word) for word in question.lower().split()}:
        df = sum(term in chunk for chunk in chunks.values())
        idf = log(1 + (len(chunks) - df + 0.5) / (df + 0.5))
        for place, chunk in chunks.items():
            norm = config.k1 * (1 - config.b + config.b * chunk.total() / config.avgdl)
            scores[place] += idf * chunk[term] * (config.k1 + 1) / (chunk[term] + norm)
    return {place: score for place, score in scores.items() if score > 0}


LOCKS = [
    SampleDocument("lock", ["heron stork heron", "stork crane wharf lamp quilt"]),
    SampleDocument("weir", ["herons barking", "plank plank plank stork", "grip"]),
    SampleDocument("mill", ["crane " * 30 + "heron"]),
]
CONFIGS = [LexicalConfig(), LexicalConfig(k1=0.5, b=0.2, avgdl=20)]


@pytest.mark.parametrize("config", CONFIGS, ids=["default", "other"])
async def test_lexical_scores_are_bm25_of_the_generation(
    world: SearchWorld, config: LexicalConfig
) -> None:
    await world.add(*LOCKS)
    await world.add_generation("g2", config, *LOCKS)
    for question in ("heron", "stork crane", "barked plank lamps", "grip heron quilt"):
        found = await search_words(world, question, generation="g2")
        assert found == pytest.approx(compute_bm25(LOCKS, question, config), rel=2e-3)
        assert list(found.values()) == sorted(found.values(), reverse=True)


async def test_unknown_generation_is_not_found(world: SearchWorld) -> None:
    await world.add(*LOCKS)
    with pytest.raises(NotFound):
        await search_words(world, "heron", generation="g9")


async def test_generations_hold_their_own_documents(world: SearchWorld) -> None:
    await world.add(*LOCKS)
    await world.add_generation("g2", LexicalConfig(), LOCKS[2])
    assert set(await search_words(world, "heron", generation="g2")) == {("mill", 0)}
    assert len(await search_words(world, "heron")) == 3


async def test_idf_covers_words_that_no_document_has(world: SearchWorld) -> None:
    await world.add(SampleDocument("a", ["wolf"]), SampleDocument("b", ["tiger"]))
    async with world.search.open_snapshot() as snapshot:
        found = await snapshot.search_lexical(
            "default", "wolves unheard", language="en", filters=NO_FILTERS, k=5, budget=5000
        )
    assert found.idf["english"] == pytest.approx(
        dict.fromkeys(("wolv", "unheard"), log(1 + 2.5 / 0.5))
    )


async def test_each_language_is_counted_and_stemmed_apart(world: SearchWorld) -> None:
    await world.add(
        SampleDocument("pt", ["As INVERSÕES térmicas"], "pt"),
        SampleDocument("en", ["the running heron"], "en"),
        SampleDocument("none", ["zorblax running"], None),
    )
    assert set(await search_words(world, "TÉRMICA", language="pt")) == {("pt", 0)}
    assert set(await search_words(world, "runs", language="en")) == {("en", 0)}
    assert set(await search_words(world, "running", language=None)) == {("en", 0), ("none", 0)}
    assert set(await search_words(world, "what is the heron", language="en")) == {("en", 0)}


async def test_tenants_do_not_see_or_count_each_other(world: SearchWorld) -> None:
    await world.add(*LOCKS)
    before = await search_words(world, "heron")
    await world.add(*(SampleDocument(f"x{n}", ["heron"], tenant="other") for n in range(5)))
    assert await search_words(world, "heron") == before
    assert len(await search_words(world, "heron", tenant="other")) == 5
    async with world.search.open_snapshot() as snapshot:
        assert (await snapshot.count_chunks("default"), await snapshot.count_chunks("other")) == (
            6,
            5,
        )


async def test_readers_limit_hits_but_not_statistics(world: SearchWorld) -> None:
    await world.add(
        SampleDocument("open", ["heron"]),
        SampleDocument("ana", ["heron stork"], readers=("user:ana",)),
        SampleDocument("team", ["heron crane"], readers=("group:team", "user:bob")),
        SampleDocument("nobody", ["heron"], readers=()),
    )
    everything = await search_words(world, "heron")
    assert len(everything) == 4
    ana = await search_words(world, "heron", readers=["user:ana"])
    assert ana == {place: everything[place] for place in (("open", 0), ("ana", 0))}
    assert set(await search_words(world, "heron", readers=["user:bob"])) == {
        ("open", 0),
        ("team", 0),
    }
    assert set(await search_words(world, "heron", readers=[])) == {("open", 0)}


FILTERED = [
    SampleDocument(
        "a",
        ["lobster"],
        collection="law",
        tags=("red", "old"),
        document_date=date(2024, 5, 1),
        vectors=[[1.0, 0, 0, 0]],
    ),
    SampleDocument(
        "b",
        ["lobster"],
        collection="art",
        tags=("red",),
        document_date=date(2025, 6, 1),
        metadata={"pages": 3, "x": 1},
        vectors=[[0.9, 0.1, 0, 0]],
    ),
    SampleDocument("c", ["lobster"], "pt", collection="law", vectors=[[0.8, 0.2, 0, 0]]),
]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (NO_FILTERS, "abc"),
        (Filters(collections=["law"]), "ac"),
        (Filters(tags=["red", "old"]), "a"),
        (Filters(external_ids=["b", "c"]), "bc"),
        (Filters(document_ids=[FILTERED[1].id]), "b"),
        (Filters(languages=["pt"]), "c"),
        (Filters(date_from=date(2025, 6, 1)), "bc"),
        (Filters(date_from=date(2025, 1, 1), date_to=date(2025, 12, 31)), "b"),
        (Filters(metadata={"pages": 3}), "b"),
        (Filters(collections=["law"], languages=["en"]), "a"),
        (Filters(collections=["nowhere"]), ""),
    ],
)
async def test_every_channel_applies_the_filters(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch, filters: Filters, found: str
) -> None:
    """Few documents are listed before the search, many are looked up hit by hit."""
    await world.add(*FILTERED)
    for document in FILTERED:
        await world.mention(document, 0, "lobster")
    east, seed = np.array([1.0, 0, 0, 0], np.float32), EntitySeed("name", "lobster", 1.0)
    for listed in (2_000, 0):
        monkeypatch.setattr("sql.index.snapshot.MAX_LISTED_DOCUMENTS", listed)
        async with world.search.open_snapshot() as snapshot:
            lexical = await snapshot.search_lexical(
                "default", "lobster", language="en", filters=filters, k=9, budget=5000
            )
            semantic = await snapshot.search_semantic("default", east, filters=filters, k=9)
            graph = await snapshot.search_graph(
                "default", [seed], GraphWalk(1, 5), filters=filters, k=9
            )
            for hits in (lexical.hits, semantic, graph):
                assert {place for place, _ in await locate(snapshot, hits)} == set(found)


async def test_semantic_order_is_cosine_similarity(world: SearchWorld) -> None:
    rows = {"east": [2.0, 0, 0, 0], "near": [3.0, 1.0, 0, 0], "north": [0, 1.0, 0, 0]}
    await world.add(
        *(SampleDocument(name, [name], vectors=[row]) for name, row in rows.items()),
        SampleDocument("plain", ["without a vector"]),
        SampleDocument("other", ["east"], tenant="other", vectors=[[1.0, 0, 0, 0]]),
        SampleDocument("secret", ["east"], readers=("user:ana",), vectors=[[1.0, 0, 0, 0]]),
    )
    async with world.search.open_snapshot(readers=("user:bob",)) as snapshot:
        east = np.array([1.0, 0, 0, 0], np.float32)
        hits = await snapshot.search_semantic("default", east, filters=NO_FILTERS, k=9)
        places = await locate(snapshot, hits)
        assert list(places) == [("east", 0), ("near", 0), ("north", 0)]
        assert list(places.values()) == pytest.approx([1.0, 3 / 10**0.5, 0.0], abs=2e-3)
        best = await snapshot.search_semantic("default", east, filters=NO_FILTERS, k=1)
        assert list(await locate(snapshot, best)) == [("east", 0)]


async def test_graph_scores_decay_along_relations(world: SearchWorld) -> None:
    chain = SampleDocument("chain", ["ada", "bob", "cyd", "dee"])
    hidden = SampleDocument("hidden", ["eve"], readers=("user:ana",))
    await world.add(chain, hidden)
    for ordinal, name in enumerate(chain.texts):
        await world.mention(chain, ordinal, name)
    await world.mention(hidden, 0, "eve")
    for subject, object_ in (("ada", "bob"), ("bob", "cyd"), ("cyd", "dee")):
        await world.relate(chain, subject, object_, 0.8)
    await world.relate(hidden, "ada", "eve", 1.0)

    async def walk(
        hops: int, readers: tuple[str, ...] | None = ("user:bob",), min_hops: int = 0
    ) -> dict[Place, float]:
        async with world.search.open_snapshot(readers=readers) as snapshot:
            assert [
                seed.key for seed in await snapshot.link_entities("default", ["ada", "zoe"])
            ] == ["ada"]
            hits = await snapshot.search_graph(
                "default",
                [EntitySeed("name", "ada", 1.0)],
                GraphWalk(hops, 5, min_hops=min_hops),
                filters=NO_FILTERS,
                k=9,
            )
            return await locate(snapshot, hits)

    assert await walk(0) == {("chain", 0): 1.0}
    assert await walk(1, min_hops=1) == pytest.approx({("chain", 1): 0.4})
    assert await walk(1) == pytest.approx({("chain", 0): 1.0, ("chain", 1): 0.4})
    assert await walk(2) == pytest.approx(
        {("chain", 0): 1.16, ("chain", 1): 0.4, ("chain", 2): 0.16}
    )
    assert (await walk(1, None))[("hidden", 0)] == pytest.approx(0.5)


async def test_graph_evidence_is_the_place_of_both_names(world: SearchWorld) -> None:
    first = SampleDocument("first", ["ada worked at kestrel"], collection="letters")
    second = SampleDocument("second", ["kestrel built for lund", "kestrel"])
    third = SampleDocument("third", ["lund lies near malmo"])
    hidden = SampleDocument("hidden", ["ada owns lund"], readers=("user:ana",))
    foreign = SampleDocument("foreign", ["ada sold lund"], tenant="other")
    await world.add(first, second, third, hidden, foreign)
    for document, subject, object_ in (
        (first, "ada", "kestrel"),
        (second, "kestrel", "lund"),
        (third, "lund", "malmo"),
        (hidden, "ada", "lund"),
        (foreign, "ada", "lund"),
    ):
        await world.mention(document, 0, subject)
        await world.mention(document, 0, object_)
        await world.relate(document, subject, object_, 0.8)
    texts = {
        document.id: "\n\n".join(document.texts) for document in (first, second, third, hidden)
    }

    async def find(
        *names: str,
        hops: int = 2,
        tenant: str = "default",
        readers: tuple[str, ...] | None = ("user:bob",),
        filters: Filters = NO_FILTERS,
        limit: int = 9,
    ) -> list[tuple[str, str, int, int | None, int | None]]:
        seeds = [EntitySeed("name", name, 1.0) for name in names]
        async with world.search.open_snapshot(readers=readers) as snapshot:
            rows = await snapshot.find_graph_evidence(
                tenant, seeds, hops=hops, fan_out=5, filters=filters, found=[], limit=limit
            )
            for row in rows:
                assert row.kind == "relation" and row.predicate == "knows"
                assert (row.char_start, row.char_end) == (
                    0,
                    len(texts[row.document_id].split("\n")[0]),
                )
                [chunk] = (await snapshot.fetch_chunks([row.chunk_id], "")).values()
                assert (chunk.parent_id, chunk.document_id) == (row.parent_id, row.document_id)
            return [
                (
                    texts[row.document_id][slice(*row.subject_span)],
                    texts[row.document_id][slice(*row.object_span)],
                    row.hop,
                    row.subject_seed,
                    row.object_seed,
                )
                for row in rows
            ]

    ada, kestrel = ("ada", "kestrel", 1, 0, None), ("kestrel", "lund", 1, None, 1)
    found = await find("ada", "lund")
    assert sorted(found[:2]) == [ada, kestrel]
    assert found[2:] == [("lund", "malmo", 1, 1, None)]
    assert await find("ada", hops=1) == [ada]
    assert await find("ada") == [ada, ("kestrel", "lund", 2, None, None)]
    assert (await find("ada", "lund", readers=("user:ana",)))[0] == ("ada", "lund", 1, 0, 1)
    assert await find("ada", "lund", filters=Filters(collections=["letters"])) == [ada]
    assert len(await find("ada", "lund", limit=2)) == 2
    assert await find("zoe") == [] and await find() == []


async def test_ranking_facts_hold_date_labels_and_distance_from_the_seeds(
    world: SearchWorld,
) -> None:
    chain = SampleDocument(
        "chain",
        ["ada", "bob", "cyd"],
        collection="letters",
        tags=("tax",),
        metadata={"site": "Porto", "cycle": 3},
        document_date=date(2024, 5, 1),
    )
    hidden = SampleDocument("hidden", ["ada"], readers=("user:ana",))
    foreign = SampleDocument("foreign", ["ada"], tenant="other")
    await world.add(chain, hidden, foreign)
    await world.mention(foreign, 0, "ada")
    await world.mention(hidden, 0, "ada")
    for ordinal, name in enumerate(chain.texts):
        await world.mention(chain, ordinal, name)
    await world.relate(chain, "ada", "bob", 0.8)
    await world.relate(chain, "bob", "cyd", 0.8)

    async def fetch(
        hops: int, tenant: str = "default", readers: tuple[str, ...] | None = ("user:bob",)
    ) -> dict[Place, RankingFacts]:
        async with world.search.open_snapshot(readers=readers) as snapshot:
            hits: list[Hit] = []
            for name in ("default", "other"):
                found = await snapshot.search_lexical(
                    name, "ada bob cyd", language="en", filters=NO_FILTERS, k=9, budget=99
                )
                hits += found.hits
            places = {
                hit.chunk_id: place for hit in hits for place in await locate(snapshot, [hit])
            }
            # The caller asks for every chunk, those of the other tenant too.
            facts = await snapshot.fetch_ranking_facts(
                tenant, list(places), [EntitySeed("name", "ada", 1.0)], hops=hops, fan_out=5
            )
            return {places[chunk_id]: fact for chunk_id, fact in facts.items()}

    near = await fetch(1)
    assert {place: fact.hop for place, fact in near.items()} == {
        ("chain", 0): 0,
        ("chain", 1): 1,
        ("chain", 2): None,
    }
    first = near["chain", 0]
    assert first.document_date == date(2024, 5, 1)
    assert sorted(first.labels) == ["Porto", "letters", "tax"]
    assert (first.seed_keys, first.relation_types) == ({"ada"}, {"knows"})
    assert near["chain", 1].seed_keys == near["chain", 1].relation_types == frozenset()
    assert (await fetch(2))["chain", 2].hop == 2
    assert set(await fetch(1, tenant="other")) == {("foreign", 0)}
    assert ("hidden", 0) in await fetch(1, readers=None)


async def test_graph_follows_only_the_heaviest_relations(world: SearchWorld) -> None:
    hub = SampleDocument("hub", ["hub", *[f"spoke {n}" for n in range(6)]])
    await world.add(hub)
    for ordinal, name in enumerate(hub.texts):
        await world.mention(hub, ordinal, name)
    for n in range(6):
        await world.relate(hub, "hub", f"spoke {n}", (n + 1) / 7)
    async with world.search.open_snapshot() as snapshot:
        hits = await snapshot.search_graph(
            "default",
            [EntitySeed("name", "hub", 1.0)],
            GraphWalk(1, 2),
            filters=NO_FILTERS,
            k=9,
        )
        assert set(await locate(snapshot, hits)) == {("hub", 0), ("hub", 5), ("hub", 6)}


async def test_entity_graph_has_edges_that_the_caller_may_read(world: SearchWorld) -> None:
    shown = SampleDocument("shown", ["ada film", "film bob"], collection="letters")
    other = SampleDocument("other", ["bob cyd"])
    hidden = SampleDocument("hidden", ["ada dee"], readers=("user:ana",))
    foreign = SampleDocument("foreign", ["ada eve"], tenant="other")
    await world.add(shown, other, hidden, foreign)
    # The foreign one first: `relate` takes the entity that a name was last mentioned as.
    for document in (foreign, shown, other, hidden):
        for ordinal, text in enumerate(document.texts):
            for name in text.split():
                await world.mention(document, ordinal, name)
    await world.relate(other, "film", "cyd", 0.8)
    await world.relate(hidden, "ada", "cyd", 1.0)
    names = {
        make_entity_id("default", "name", name): name
        for name in ("ada", "film", "bob", "cyd", "dee")
    }

    async def fetch(
        hops: int, readers: tuple[str, ...] | None = ("user:bob",), filters: Filters = NO_FILTERS
    ) -> tuple[set[frozenset[str]], set[tuple[str, Place]]]:
        """Return the relations, and the mentions."""
        async with world.search.open_snapshot(readers=readers) as snapshot:
            graph = await snapshot.fetch_entity_graph(
                "default", [EntitySeed("name", "ada", 1.0)], GraphWalk(hops, 5), filters=filters
            )
            assert {names[entity]: weight for entity, weight in graph.seeds.items()} == {"ada": 1.0}
            chunks = await snapshot.fetch_chunks(
                [edge.node_id for edge in graph.edges if edge.document_id], ""
            )
        relations = {
            frozenset((names[edge.entity_id], names[edge.node_id]))
            for edge in graph.edges
            if edge.document_id is None
        }
        mentions = {
            (names[edge.entity_id], (chunk.external_id or "", chunk.ordinal))
            for edge in graph.edges
            if (chunk := chunks.get(edge.node_id))
        }
        assert len(relations) + len(mentions) == len(graph.edges)
        return relations, mentions

    near = {("ada", ("shown", 0)), ("film", ("shown", 0)), ("film", ("shown", 1))}
    further = {("bob", ("shown", 1)), ("bob", ("other", 0)), ("cyd", ("other", 0))}
    assert await fetch(1) == (set(), near)
    assert await fetch(2) == ({frozenset(("film", "cyd"))}, near | further)
    letters = {*near, ("bob", ("shown", 1))}
    found = await fetch(2, filters=Filters(collections=["letters"]))
    assert found == ({frozenset(("film", "cyd"))}, letters)
    assert ("dee", ("hidden", 0)) in (await fetch(1, None))[1]


async def test_graph_nodes_are_mapped_to_chunks_that_the_caller_may_read(
    world: SearchWorld,
) -> None:
    shown = SampleDocument("shown", ["ada", "bob"], collection="letters")
    hidden = SampleDocument("hidden", ["ada"], readers=("user:ana",))
    foreign = SampleDocument("foreign", ["ada"], tenant="other")
    await world.add(shown, hidden, foreign)
    for document in (shown, hidden, foreign):
        await world.mention(document, 0, "ada")
    await world.mention(shown, 1, "ada")
    await world.mention(shown, 1, "bob")
    entities = {
        make_entity_id(tenant, "name", name): score
        for tenant in ("default", "other")
        for name, score in (("ada", 1.0), ("bob", 0.5), ("zoe", 9.0))
    }

    async def find(
        readers: tuple[str, ...] | None = None, filters: Filters = NO_FILTERS, k: int = 9
    ) -> tuple[dict[Place, float], dict[Place, float]]:
        """Return the chunks of the entities, and those among the chunks of all documents."""
        async with world.search.open_snapshot() as everything:
            chunk_ids = {
                hit.chunk_id: 0.25
                for tenant in ("default", "other")
                for hit in (
                    await everything.search_lexical(
                        tenant, "ada bob", language="en", filters=NO_FILTERS, k=9, budget=99
                    )
                ).hits
            }
        assert len(chunk_ids) == 4
        async with world.search.open_snapshot(readers=readers) as snapshot:
            found = [
                await snapshot.search_graph_nodes(
                    "default", entities=nodes, chunks=chunks, filters=filters, k=k
                )
                for nodes, chunks in ((entities, {}), ({}, {**chunk_ids, UUID(int=1): 1.0}))
            ]
            return await locate(snapshot, found[0]), await locate(snapshot, found[1])

    first, second, secret = ("shown", 0), ("shown", 1), ("hidden", 0)
    assert await find() == (
        {second: 1.5, first: 1.0, secret: 1.0},
        {first: 0.25, second: 0.25, secret: 0.25},
    )
    assert await find(readers=("user:bob",)) == (
        {second: 1.5, first: 1.0},
        {first: 0.25, second: 0.25},
    )
    assert await find(filters=Filters(collections=["letters"])) == (
        {second: 1.5, first: 1.0},
        {first: 0.25, second: 0.25},
    )
    assert list((await find(k=1))[0]) == [second]


async def test_passages_are_read_with_their_families(world: SearchWorld) -> None:
    document = SampleDocument("two", ["heron one", "heron two"], readers=("user:ana",))
    await world.add(document)
    async with world.search.open_snapshot() as snapshot:
        found = await snapshot.search_lexical(
            "default", "heron", language="en", filters=NO_FILTERS, k=9, budget=5000
        )
        chunks = await snapshot.fetch_chunks([hit.chunk_id for hit in found.hits], "herons?")
        parent_ids = [chunk.parent_id for chunk in chunks.values()]
        parents = await snapshot.fetch_parents(parent_ids)
        children = await snapshot.fetch_children(parent_ids)
        assert sorted(chunk.text for chunk in chunks.values()) == ["heron one", "heron two"]
        assert {parents[chunk.parent_id].text for chunk in chunks.values()} == {
            chunk.text for chunk in chunks.values()
        }
        assert {child.chunk_id for child in children} == set(chunks)
        assert {
            (child.chunk_id, child.parent_id, child.states)
            for child in await snapshot.fetch_child_states(parent_ids)
        } == {(child.chunk_id, child.parent_id, child.states) for child in children}
        assert [dict(chunk.positions) for chunk in chunks.values()] == [{"heron": [1]}] * 2
        assert not any(child.positions for child in children)
    async with world.search.open_snapshot(readers=()) as limited:
        assert not await limited.fetch_chunks(list(chunks), "")
        assert not await limited.fetch_parents(parent_ids)
        assert not await limited.fetch_children(parent_ids)
        assert not await limited.fetch_child_states(parent_ids)


async def test_newer_revision_replaces_the_earlier(world: SearchWorld) -> None:
    await world.add(SampleDocument("a", ["heron stork"], vectors=[[1.0, 0, 0, 0]]))
    await world.add(
        SampleDocument("a", ["stork crane"], order=(1, 2), revision=2, vectors=[[0, 1.0, 0, 0]])
    )
    assert not await search_words(world, "heron")
    assert set(await search_words(world, "stork")) == {("a", 0)}


async def test_missing_collections_are_named(world: SearchWorld) -> None:
    await world.add(
        SampleDocument("a", ["heron"], collection="law"),
        SampleDocument("b", ["heron"], collection="art", readers=("user:ana",)),
    )
    async with world.search.open_snapshot(readers=("user:bob",)) as snapshot:
        assert list(await snapshot.find_missing_collections("default", ["law", "art", "x"])) == [
            "art",
            "x",
        ]


async def test_documents_are_found_by_name(world: SearchWorld) -> None:
    """Also proves that SQL and Python normalize names alike."""
    titled = SampleDocument(
        "film",
        ("A film of 1987.",),
        title="The Half-Naked Truth (film)",
        prefix="The Half-Naked Truth (film) > Plot",
    )
    scanned = SampleDocument(
        "scan", ("Ciência da O'Brien is a novel.",), title="scan_0412.pdf", prefix="scan_0412.pdf"
    )
    about_other = SampleDocument(
        "cells", ("T cells are counted here.",), title="Antigen decides", prefix="Antigen decides"
    )
    untitled = SampleDocument("untitled", ("The Heron Dam is old.",), title=None, prefix="")
    await world.add(titled, scanned, about_other, untitled)
    names = ["Half Naked Truth!", "The Half-Naked Truth (Film)", "CIENCIA da OBrien", "Scan 0412"]
    keys = {fold_document_name(name): name for name in names}
    async with world.search.open_snapshot() as snapshot:
        found = await snapshot.find_named_documents(
            "default", [*keys, "plot", "t cells", "heron dam"], filters=NO_FILTERS, limit=10
        )
        assert {(keys.get(one.key, one.key), one.document_id) for one in found} == {
            ("Half Naked Truth!", titled.id),
            ("The Half-Naked Truth (Film)", titled.id),
            ("CIENCIA da OBrien", scanned.id),
            ("Scan 0412", scanned.id),
            ("heron dam", untitled.id),
        }
        views = await snapshot.fetch_chunks([one.chunk_id for one in found], "")
        assert {view.ordinal for view in views.values()} == {0}
        filtered = Filters(external_ids=["scan"])
        found = await snapshot.find_named_documents(
            "default", list(keys), filters=filtered, limit=9
        )
        assert {one.document_id for one in found} == {scanned.id}
        assert not await snapshot.find_named_documents(
            "other", list(keys), filters=NO_FILTERS, limit=9
        )


async def test_erased_documents_are_found(world: SearchWorld) -> None:
    kept, erased = SampleDocument("kept", ["a"]), SampleDocument("erased", ["b"])
    await world.add(kept)
    assert await world.search.find_erased([kept.id, erased.id]) == [erased.id]
    if isinstance(world, PostgresWorld):
        query = "insert into erasure_subjects values ($1, $2)"
        await world.stack.connection.execute(query, UUID(int=1), kept.id)
        assert await world.search.find_erased([kept.id]) == [kept.id]
