"""Linking names to entities, and walking visible relations from them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from schemas.ports.search import Hit, Seed
from schemas.questions import Filters
from sql.entities import PgEntities
from tests.callers import LOCAL, caller
from tests.rows import Doc, add, add_mention, add_relation, flip
from tests.searching import Stand, stand

ALL = Filters()


async def expand(desk: Stand, *seeds: Seed, hops: int = 2, fan_out: int = 25, decay: float = 0.5, filters: Filters = ALL, k: int = 10) -> Sequence[Hit]:
    async with desk.search.snapshot() as snapshot:
        return await snapshot.graph("default", seeds, hops=hops, fan_out=fan_out, decay=decay, filters=filters, k=k)


async def chain(desk: Stand) -> tuple[Doc, list[UUID]]:
    """ada → bob → cyd → dee, each named in a chunk of its own."""
    doc = Doc("chain", ["ada", "bob", "cyd", "dee"])
    await add(desk.connection, doc)
    people = [await add_mention(desk.connection, doc, place, "person", name) for place, name in enumerate(doc.texts)]
    for place in range(3):
        await add_relation(desk.connection, doc, place, people[place], people[place + 1], 0.8)
    return doc, people


async def test_scores_decay_with_each_hop_and_stop_after_the_last(database: str) -> None:
    async with stand(database) as desk:
        doc, _ = await chain(desk)
        one = await expand(desk, Seed("person", "ada", 1.0), hops=1)
        assert {hit.chunk_id: hit.score for hit in one} == {doc.chunk_id(0): 1.0, doc.chunk_id(1): pytest.approx(0.4)}
        two = {hit.chunk_id: hit.score for hit in await expand(desk, Seed("person", "ada", 1.0))}
        assert two[doc.chunk_id(2)] == pytest.approx(0.16)
        assert doc.chunk_id(3) not in two
        assert two[doc.chunk_id(0)] == pytest.approx(1.16)


async def test_relations_are_walked_against_their_direction_too(database: str) -> None:
    async with stand(database) as desk:
        doc, _ = await chain(desk)
        assert doc.chunk_id(1) in {hit.chunk_id for hit in await expand(desk, Seed("person", "cyd", 1.0), hops=1)}


async def test_the_heaviest_relations_of_a_hub_are_walked_and_no_more(database: str) -> None:
    doc = Doc("hub", ["hub", *[f"spoke {n}" for n in range(30)]])
    async with stand(database) as desk:
        await add(desk.connection, doc)
        hub = await add_mention(desk.connection, doc, 0, "org", "hub")
        for n in range(30):
            await add_relation(desk.connection, doc, n + 1, hub, await add_mention(desk.connection, doc, n + 1, "org", f"spoke {n}"), (n + 1) / 31)
        hits = await expand(desk, Seed("org", "hub", 1.0), hops=1, fan_out=5, k=50)
        assert {hit.chunk_id for hit in hits} == {doc.chunk_id(0), *(doc.chunk_id(n + 1) for n in range(25, 30))}


async def test_a_chunk_that_names_both_ends_beats_one_that_names_one(database: str) -> None:
    doc = Doc("d", ["ada and bob", "ada", "bob"])
    async with stand(database) as desk:
        await add(desk.connection, doc)
        ada = await add_mention(desk.connection, doc, 0, "person", "ada")
        bob = await add_mention(desk.connection, doc, 0, "person", "bob")
        await add_mention(desk.connection, doc, 0, "person", "ada")
        await add_mention(desk.connection, doc, 1, "person", "ada")
        await add_mention(desk.connection, doc, 2, "person", "bob")
        await add_relation(desk.connection, doc, 0, ada, bob, 1.0)
        hits = await expand(desk, Seed("person", "ada", 1.0), hops=1)
        assert [hit.chunk_id for hit in hits] == [doc.chunk_id(0), doc.chunk_id(1), doc.chunk_id(2)]
        assert hits[0].score == pytest.approx(1.5)


async def test_what_is_not_visible_neither_links_nor_leads_anywhere(database: str) -> None:
    old, new = Doc("d", ["ada bob"]), Doc("d", ["ada cyd"], order=(1, 2), revision=2)
    async with stand(database) as desk:
        await add(desk.connection, old)
        await add(desk.connection, new, visible=False)
        for doc, other in ((old, "bob"), (new, "cyd")):
            ada, friend = await add_mention(desk.connection, doc, 0, "person", "ada"), await add_mention(desk.connection, doc, 0, "person", other)
            await add_relation(desk.connection, doc, 0, ada, friend)
        async with desk.search.snapshot() as snapshot:
            assert [seed.key for seed in await snapshot.link("default", ["ada", "bob", "cyd"])] == ["ada", "bob"]
            assert not await snapshot.link("other", ["ada"])
        assert {hit.chunk_id for hit in await expand(desk, Seed("person", "ada", 1.0))} == {old.chunk_id(0)}
        await flip(desk.connection, new)
        assert {hit.chunk_id for hit in await expand(desk, Seed("person", "ada", 1.0))} == {new.chunk_id(0)}


async def test_a_name_of_several_entities_is_shared_among_them_by_mentions(database: str) -> None:
    doc = Doc("d", ["mercury", "mercury", "mercury", "mercury"])
    async with stand(database) as desk:
        await add(desk.connection, doc)
        for place in range(3):
            await add_mention(desk.connection, doc, place, "planet", "mercury")
        await add_mention(desk.connection, doc, 3, "metal", "mercury")
        async with desk.search.snapshot() as snapshot:
            assert await snapshot.link("default", ["mercury"]) == [Seed("planet", "mercury", 0.75), Seed("metal", "mercury", 0.25)]
            assert await snapshot.link("default", []) == []


async def test_filters_hold_for_the_chunks_that_are_found(database: str) -> None:
    a, b = Doc("a", ["ada"], collection="x"), Doc("b", ["ada"], collection="y")
    async with stand(database) as desk:
        await add(desk.connection, a, b)
        for doc in (a, b):
            await add_mention(desk.connection, doc, 0, "person", "ada")
        hits = await expand(desk, Seed("person", "ada", 1.0), filters=Filters(collections=["y"]))
        assert [hit.document_id for hit in hits] == [b.id]


async def test_an_entity_is_called_what_it_is_called_most_then_the_smallest(database: str) -> None:
    doc = Doc("d", ["one", "two", "three", "four"])
    async with stand(database) as desk:
        await add(desk.connection, doc)
        for place, name in enumerate(["ACME Corp", "Acme", "Acme", "ACME Corp"]):
            entity = await add_mention(desk.connection, doc, place, "org", "acme", name)
        await add_mention(desk.connection, doc, 0, "org", "acme", "ZACME")
        found, following = await PgEntities(desk.pool).find(LOCAL, text="acme", kind="org", after=None, limit=10)
        assert [(item["id"], item["name"], item["aliases"], item["mentions"]) for item in found] == [(entity, "ACME Corp", ["Acme", "ZACME"], 5)]
        assert following is None


async def test_an_entity_without_visible_mentions_does_not_exist(database: str) -> None:
    doc = Doc("d", ["ada"])
    async with stand(database) as desk:
        await add(desk.connection, doc)
        entity = await add_mention(desk.connection, doc, 0, "person", "ada")
        entities = PgEntities(desk.pool)
        assert await entities.get(LOCAL, entity) is not None
        assert await entities.get(caller("other"), entity) is None
        await desk.connection.execute("delete from visible")
        assert await entities.get(LOCAL, entity) is None
        assert await entities.find(LOCAL, text=None, kind=None, after=None, limit=5) == ([], None)


async def test_entities_come_page_by_page_without_repeats(database: str) -> None:
    doc = Doc("d", ["x"])
    async with stand(database) as desk:
        await add(desk.connection, doc)
        for n in range(7):
            for _ in range(1 + n % 3):
                await add_mention(desk.connection, doc, 0, "thing", f"thing {n}")
        entities, seen, after = PgEntities(desk.pool), list[str](), None
        while True:
            page, after = await entities.find(LOCAL, text=None, kind=None, after=after, limit=2)
            seen += [item["name"] for item in page]
            if after is None:
                break
        assert len(seen) == len(set(seen)) == 7


async def test_an_entity_tells_its_relations_and_a_subgraph_stays_within_its_hops(database: str) -> None:
    async with stand(database) as desk:
        doc, people = await chain(desk)
        entities = PgEntities(desk.pool)
        bob = await entities.get(LOCAL, people[1])
        assert bob is not None and {(r["subject"], r["type"], r["object"]) for r in bob["relations"]} == {("ada", "knows", "bob"), ("bob", "knows", "cyd")}
        assert [place["chunk_id"] for place in bob["occurrences"]] == [doc.chunk_id(1)]
        near = await entities.subgraph(LOCAL, people[:1], hops=1, limit=10)
        assert {node["name"] for node in near["nodes"]} == {"ada", "bob"} and len(near["edges"]) == 1
        assert len((await entities.subgraph(LOCAL, people[:1], hops=3, limit=10))["edges"]) == 3
