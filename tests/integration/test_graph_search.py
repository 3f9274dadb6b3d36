"""Link names to entities and walk visible relations from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from retrieval.ranking.channels import ChannelRequest
from retrieval.ranking.channels.graph import retrieve
from schemas.channels import GraphProfile
from schemas.citations import GraphEvidence
from schemas.ports.engines import QueryEmbedding
from schemas.ports.search import EntitySeed, GraphWalk, Hit
from schemas.questions import Filters
from sql.index import search
from sql.index.entities import PgEntities
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.document_rows import (
    SampleDocument,
    activate_revision,
    insert_claim,
    insert_documents,
    insert_mention,
    insert_relation,
)
from tests.support.search_stack import SearchStack

NO_FILTERS = Filters()


async def search_graph(
    stack: SearchStack,
    *seeds: EntitySeed,
    hops: int = 2,
    fan_out: int = 25,
    decay: float = 0.5,
    filters: Filters = NO_FILTERS,
    k: int = 10,
) -> Sequence[Hit]:
    async with stack.search.open_snapshot() as snapshot:
        return await snapshot.search_graph(
            "default", seeds, GraphWalk(hops, fan_out, decay=decay), filters=filters, k=k
        )


async def walk(
    stack: SearchStack,
    *names: str,
    tenant: str = "default",
    filters: Filters = NO_FILTERS,
    readers: tuple[str, ...] | None = None,
    **settings: Any,
) -> dict[UUID, float]:
    """Return the chunks by personalized PageRank, best first."""
    async with stack.search.open_snapshot(readers=readers) as snapshot:
        request = ChannelRequest(
            snapshot,
            tenant,
            "",
            "en",
            dict.fromkeys(names, 1.0),
            filters,
            GraphProfile.model_validate({"strategy": "pagerank", **settings}),
            10,
            refuse_to_embed,
        )
        hits = (await retrieve(request)).hits
    return {hit.chunk_id: hit.score for hit in hits}


async def refuse_to_embed() -> QueryEmbedding:
    raise AssertionError("the graph channel needs no vector")


async def insert_shared_entities(stack: SearchStack) -> list[SampleDocument]:
    """Insert ada - film, film - bob, bob - town, and a document of each further word."""
    texts = ("ada film", "film bob", "bob town", "town")
    documents = [
        SampleDocument(text.replace(" ", "-"), [text], collection=text.split()[-1])
        for text in texts
    ]
    await insert_documents(stack.connection, *documents)
    for doc in documents:
        for name in doc.texts[0].split():
            await insert_mention(stack.connection, doc, 0, "thing", name)
    return documents


async def insert_chain(stack: SearchStack) -> tuple[SampleDocument, list[UUID]]:
    """Insert ada → bob → cyd → dee, each named in a chunk of its own."""
    doc = SampleDocument("chain", ["ada", "bob", "cyd", "dee"])
    await insert_documents(stack.connection, doc)
    people = [
        await insert_mention(stack.connection, doc, place, "person", name)
        for place, name in enumerate(doc.texts)
    ]
    for place in range(3):
        await insert_relation(stack.connection, doc, place, people[place], people[place + 1], 0.8)
    return doc, people


async def test_mentions_beyond_the_limit_are_not_searched(
    stack: SearchStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc = SampleDocument("d", [f"ada {n}" for n in range(8)])
    await insert_documents(stack.connection, doc)
    for n in range(8):
        await insert_mention(stack.connection, doc, n, "person", "ada")
    for limit, found in ((3, 3), (8, 8), (9, 8)):
        monkeypatch.setattr(search, "MAX_MENTIONS", limit)
        hits = await search_graph(stack, EntitySeed("person", "ada", 1.0), hops=0)
        assert len(hits) == found


async def test_chunk_naming_both_entities_ranks_first(stack: SearchStack) -> None:
    doc = SampleDocument("d", ["ada and bob", "ada", "bob"])
    await insert_documents(stack.connection, doc)
    ada = await insert_mention(stack.connection, doc, 0, "person", "ada")
    bob = await insert_mention(stack.connection, doc, 0, "person", "bob")
    await insert_mention(stack.connection, doc, 0, "person", "ada")
    await insert_mention(stack.connection, doc, 1, "person", "ada")
    await insert_mention(stack.connection, doc, 2, "person", "bob")
    await insert_relation(stack.connection, doc, 0, ada, bob, 1.0)
    hits = await search_graph(stack, EntitySeed("person", "ada", 1.0), hops=1)
    assert [hit.chunk_id for hit in hits] == [doc.chunk_id(0), doc.chunk_id(1), doc.chunk_id(2)]
    assert hits[0].score == pytest.approx(1.5)


async def test_invisible_revisions_are_not_linked_or_followed(stack: SearchStack) -> None:
    old, new = (
        SampleDocument("d", ["ada bob"]),
        SampleDocument("d", ["ada cyd"], order=(1, 2), revision=2),
    )
    await insert_documents(stack.connection, old)
    await insert_documents(stack.connection, new, visible=False)
    for doc, other in ((old, "bob"), (new, "cyd")):
        ada, friend = (
            await insert_mention(stack.connection, doc, 0, "person", "ada"),
            await insert_mention(stack.connection, doc, 0, "person", other),
        )
        await insert_relation(stack.connection, doc, 0, ada, friend)
    async with stack.search.open_snapshot() as snapshot:
        assert [
            seed.key for seed in await snapshot.link_entities("default", ["ada", "bob", "cyd"])
        ] == ["ada", "bob"]
        assert not await snapshot.link_entities("other", ["ada"])
    assert {
        hit.chunk_id for hit in await search_graph(stack, EntitySeed("person", "ada", 1.0))
    } == {old.chunk_id(0)}
    await activate_revision(stack.connection, new)
    assert {
        hit.chunk_id for hit in await search_graph(stack, EntitySeed("person", "ada", 1.0))
    } == {new.chunk_id(0)}


async def test_ambiguous_name_is_weighted_by_mentions(stack: SearchStack) -> None:
    doc = SampleDocument("d", ["mercury", "mercury", "mercury", "mercury"])
    await insert_documents(stack.connection, doc)
    for place in range(3):
        await insert_mention(stack.connection, doc, place, "planet", "mercury")
    await insert_mention(stack.connection, doc, 3, "metal", "mercury")
    async with stack.search.open_snapshot() as snapshot:
        assert await snapshot.link_entities("default", ["mercury"]) == [
            EntitySeed("planet", "mercury", 0.75),
            EntitySeed("metal", "mercury", 0.25),
        ]
        assert await snapshot.link_entities("default", []) == []


async def test_entity_name_is_its_most_frequent_mention(stack: SearchStack) -> None:
    doc = SampleDocument("d", ["one", "two", "three", "four"])
    await insert_documents(stack.connection, doc)
    for place, name in enumerate(["ACME Corp", "Acme", "Acme", "ACME Corp"]):
        entity = await insert_mention(stack.connection, doc, place, "org", "acme", name)
    await insert_mention(stack.connection, doc, 0, "org", "acme", "ZACME")
    found, following = await PgEntities(stack.pool).list_entities(
        LOCAL_CALLER, text="acme", kind="org", after=None, limit=10
    )
    assert [(item["id"], item["name"], item["aliases"], item["mentions"]) for item in found] == [
        (entity, "ACME Corp", ["Acme", "ZACME"], 5)
    ]
    assert following is None


async def test_entity_without_visible_mentions_is_not_found(stack: SearchStack) -> None:
    doc = SampleDocument("d", ["ada"])
    await insert_documents(stack.connection, doc)
    entity = await insert_mention(stack.connection, doc, 0, "person", "ada")
    entities = PgEntities(stack.pool)
    assert await entities.get_entity(LOCAL_CALLER, entity) is not None
    assert await entities.get_entity(make_caller("other"), entity) is None
    await stack.connection.execute("delete from visible")
    assert await entities.get_entity(LOCAL_CALLER, entity) is None
    assert await entities.list_entities(
        LOCAL_CALLER, text=None, kind=None, after=None, limit=5
    ) == ([], None)


async def test_entity_pages_do_not_repeat(stack: SearchStack) -> None:
    doc = SampleDocument("d", ["x"])
    await insert_documents(stack.connection, doc)
    for n in range(7):
        for _ in range(1 + n % 3):
            await insert_mention(stack.connection, doc, 0, "thing", f"thing {n}")
    entities, seen, after = PgEntities(stack.pool), list[str](), None
    while True:
        page, after = await entities.list_entities(
            LOCAL_CALLER, text=None, kind=None, after=after, limit=2
        )
        seen += [item["name"] for item in page]
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 7


async def test_entity_lists_relations_and_subgraph_respects_hops(stack: SearchStack) -> None:
    doc, people = await insert_chain(stack)
    entities = PgEntities(stack.pool)
    bob = await entities.get_entity(LOCAL_CALLER, people[1])
    assert bob is not None and {
        (r["subject"], r["type"], r["object"]) for r in bob["relations"]
    } == {("ada", "knows", "bob"), ("bob", "knows", "cyd")}
    assert [place["chunk_id"] for place in bob["occurrences"]] == [doc.chunk_id(1)]
    near = await entities.get_subgraph(LOCAL_CALLER, people[:1], hops=1, limit=10)
    assert {node["name"] for node in near["nodes"]} == {"ada", "bob"} and len(near["edges"]) == 1
    assert (
        len((await entities.get_subgraph(LOCAL_CALLER, people[:1], hops=3, limit=10))["edges"]) == 3
    )


async def find_evidence(
    stack: SearchStack, *names: str, found: Sequence[UUID] = (), tenant: str = "default"
) -> Sequence[GraphEvidence]:
    seeds = [EntitySeed("name", name, 1.0) for name in names]
    async with stack.search.open_snapshot() as snapshot:
        return await snapshot.find_graph_evidence(
            tenant, seeds, hops=2, fan_out=25, filters=NO_FILTERS, found=found, limit=9
        )


async def test_evidence_is_of_visible_revision_and_own_tenant(stack: SearchStack) -> None:
    old = SampleDocument("d", ["ada met bob"])
    new = SampleDocument("d", ["ada met cyd"], order=(1, 2), revision=2)
    foreign = SampleDocument("f", ["ada met eve"], tenant="other")
    await insert_documents(stack.connection, old, foreign)
    await insert_documents(stack.connection, new, visible=False)
    for doc, other in ((old, "bob"), (new, "cyd"), (foreign, "eve")):
        ada = await insert_mention(stack.connection, doc, 0, "name", "ada")
        friend = await insert_mention(stack.connection, doc, 0, "name", other)
        await insert_relation(stack.connection, doc, 0, ada, friend)
    [row] = await find_evidence(stack, "ada")
    assert (row.chunk_id, row.object_span) == (old.chunk_id(0), (8, 11))
    await activate_revision(stack.connection, new)
    [row] = await find_evidence(stack, "ada")
    assert row.chunk_id == new.chunk_id(0)
    [row] = await find_evidence(stack, "ada", tenant="other")
    assert row.document_id == foreign.id
    assert await find_evidence(stack, "ada", tenant="third") == []


async def test_claims_are_of_the_chunks_found(stack: SearchStack) -> None:
    doc = SampleDocument("d", ["bob paid 5 EUR", "ada earns 70 EUR", "ada owes 9 EUR"])
    await insert_documents(stack.connection, doc)
    for place, (name, value) in enumerate((("bob", "5 EUR"), ("ada", "70 EUR"), ("ada", "9 EUR"))):
        subject = await insert_mention(stack.connection, doc, place, "name", name)
        await insert_claim(stack.connection, doc, place, subject, "amount", value)
    assert await find_evidence(stack, "ada") == []
    [row] = await find_evidence(stack, "ada", found=[doc.chunk_id(0), doc.chunk_id(1)])
    assert (row.kind, row.predicate, row.hop, row.object_id) == ("claim", "amount", 0, None)
    markdown = "\n\n".join(doc.texts)
    assert markdown[slice(*row.subject_span)] == "ada"
    assert markdown[slice(*row.object_span)] == markdown[row.char_start : row.char_end] == "70 EUR"


async def test_direct_relation_of_a_hub_is_found_whatever_its_weight(stack: SearchStack) -> None:
    spokes = [f"spoke {n}" for n in range(150)]
    doc = SampleDocument("hub", [f"hub and {name}" for name in spokes])
    await insert_documents(stack.connection, doc)
    for place, name in enumerate(spokes):
        hub = await insert_mention(stack.connection, doc, place, "name", "hub")
        spoke = await insert_mention(stack.connection, doc, place, "name", name)
        await insert_relation(stack.connection, doc, place, hub, spoke, 1 - place / 200)
    first, *others = await find_evidence(stack, "hub", "spoke 149")
    assert (first.subject_seed, first.object_seed) == (0, 1) and len(others) == 8


async def test_walk_finds_passages_through_shared_entities(stack: SearchStack) -> None:
    near, middle, far, beyond = [doc.chunk_id(0) for doc in await insert_shared_entities(stack)]
    found = await walk(stack, "ada")
    assert list(found) == [near, middle, far]
    assert sum(found.values()) < 1
    assert await walk(stack, "ada") == found
    assert list(await walk(stack, "ada", hops=1)) == [near, middle]
    assert list(await walk(stack, "ada", hops=3)) == [near, middle, far, beyond]
    # The film is in both passages; without relations, `hybrid` finds one.
    hits = await search_graph(stack, EntitySeed("thing", "ada", 1.0))
    assert [hit.chunk_id for hit in hits] == [near]
    assert await walk(stack, "zoe") == await walk(stack, "ada", tenant="other") == {}


async def test_walk_prefers_passage_that_more_entities_lead_to(stack: SearchStack) -> None:
    doc = SampleDocument("d", ["ada", "bob ada", "cyd", "cyd dee"])
    await insert_documents(stack.connection, doc)
    people = {
        name: await insert_mention(stack.connection, doc, place, "person", name)
        for place, text in enumerate(doc.texts)
        for name in text.split()
    }
    for other, weight in (("cyd", 0.9), ("dee", 0.9)):
        await insert_relation(stack.connection, doc, 0, people["ada"], people[other], weight)
    found = list(await walk(stack, "ada", hops=1))
    assert len(found) == 4 and found.index(doc.chunk_id(3)) < found.index(doc.chunk_id(2))


@pytest.mark.parametrize("listed", [2_000, 0])
async def test_walk_stays_within_filters_and_readers(
    stack: SearchStack, listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sql.index.snapshot.MAX_LISTED_DOCUMENTS", listed)
    near, _, far, _ = await insert_shared_entities(stack)
    secret = SampleDocument("secret", ["ada town"], readers=("user:ana",))
    await insert_documents(stack.connection, secret)
    for name in ("ada", "town"):
        await insert_mention(stack.connection, secret, 0, "thing", name)
    assert set(await walk(stack, "ada", filters=Filters(collections=["film"]))) == {
        near.chunk_id(0)
    }
    # Through the passage between them, which is outside the filters, it does not go.
    apart = Filters(collections=["film", "town"])
    assert far.chunk_id(0) not in await walk(stack, "ada", filters=apart, readers=("user:bob",))
    assert await walk(stack, "ada", filters=Filters(collections=["nowhere"])) == {}
    for readers, expected in ((("user:ana",), 5), (("user:bob",), 3)):
        assert len(await walk(stack, "ada", readers=readers)) == expected


async def test_walk_never_enters_another_tenant(stack: SearchStack) -> None:
    mine = SampleDocument("mine", ["ada", "bob"])
    theirs = SampleDocument("theirs", ["ada cyd", "cyd bob"], tenant="other")
    await insert_documents(stack.connection, mine, theirs)
    ada, bob = [
        await insert_mention(stack.connection, mine, place, "person", name)
        for place, name in enumerate(mine.texts)
    ]
    for place, text in enumerate(theirs.texts):
        for name in text.split():
            await insert_mention(stack.connection, theirs, place, "person", name)
    await insert_relation(stack.connection, theirs, 0, ada, bob, 1.0)
    # Entity ids differ by tenant; even equal ones must not connect two tenants.
    await stack.connection.execute(
        "update entity_mentions m set entity_id = own.entity_id from entity_mentions own "
        "where m.tenant = 'other' and own.tenant = 'default' and own.key = m.key"
    )
    assert list(await walk(stack, "ada", hops=3)) == [mine.chunk_id(0)]
    assert set(await walk(stack, "ada", hops=3, tenant="other")) == {
        theirs.chunk_id(0),
        theirs.chunk_id(1),
    }


async def test_walk_reads_only_visible_revisions_and_limited_mentions(
    stack: SearchStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (
        SampleDocument("d", ["ada bob", "ada", "ada"]),
        SampleDocument("d", ["ada cyd"], order=(1, 2), revision=2),
    )
    await insert_documents(stack.connection, old)
    for place, text in enumerate(old.texts):
        for name in text.split():
            await insert_mention(stack.connection, old, place, "person", name)
    for limit in (1, 2, 3):
        monkeypatch.setattr(search, "MAX_MENTIONS", limit)
        assert len(await walk(stack, "ada")) == limit
    monkeypatch.undo()
    await insert_documents(stack.connection, new, visible=False)
    for name in ("ada", "cyd"):
        await insert_mention(stack.connection, new, 0, "person", name)
    assert len(await walk(stack, "ada")) == 3
    assert await walk(stack, "cyd") == {}
    await activate_revision(stack.connection, new)
    assert list(await walk(stack, "ada")) == list(await walk(stack, "cyd")) == [new.chunk_id(0)]
