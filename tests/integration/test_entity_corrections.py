"""Corrections of entities: their types, and which of them are one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from schemas.events import EntityAmended, EntityMerged, EntityRetyped, EntitySplit
from schemas.ids import content_id, make_entity_id
from schemas.ports.ledger import ProjectedEvent
from schemas.ports.search import EntitySeed, GraphWalk
from schemas.principals import ReaderScope
from schemas.questions import Filters
from schemas.rows import ClaimRow, EventRow, MentionRow, RelationRow, Row
from sql.database import connect
from sql.inbox.shared_rows import write_shared_rows
from sql.index.derived_tables import copy_rows
from sql.index.entities import PgEntities
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.bolt_server import read_view
from tests.support.document_rows import (
    SampleDocument,
    insert_claim,
    insert_documents,
    insert_mention,
    insert_relation,
)
from tests.support.ledger_events import make_chunked, make_erasure_rows
from tests.support.search_stack import SearchStack

SHORT, LONG, MARIA = (
    make_entity_id("default", type_, key)
    for type_, key in (("PERSON", "norte"), ("ORG", "norte energia"), ("PERSON", "maria"))
)
PAID = SampleDocument("paid", ["Norte pays Maria"], readers=("user:ana",))
SIGNED = SampleDocument("signed", ["Norte Energia signs", "Maria signs for Norte Energia"])


def merge(entity: UUID, into: UUID, offset: int, tenant: str = "default") -> EventRow:
    data = EntityMerged(tenant=tenant, entity_id=entity, into=into, into_type="ORG")
    return EventRow(data, offset)


def split(entity: UUID, offset: int) -> EventRow:
    return EventRow(EntitySplit(tenant="default", entity_id=entity), offset)


def retype(entity: UUID, type_: str | None, offset: int, tenant: str = "default") -> EventRow:
    return EventRow(EntityRetyped(tenant=tenant, entity_id=entity, type=type_), offset)


def add_alias(entity: UUID, alias: str, offset: int) -> EventRow:
    data = EntityAmended(tenant="default", entity_id=entity, add_aliases=[alias])
    return EventRow(data, offset)


async def correct(stack: SearchStack, *rows: Row) -> None:
    async with stack.connection.transaction():
        await write_shared_rows(stack.connection, rows)


async def insert_network(stack: SearchStack) -> None:
    """`Norte` and `Norte Energia`, each with a relation to Maria, and a claim about the former."""
    await insert_documents(stack.connection, PAID, SIGNED)
    await insert_mention(stack.connection, PAID, 0, "PERSON", "norte", "Norte")
    await insert_mention(stack.connection, PAID, 0, "PERSON", "maria", "Maria")
    for ordinal in (0, 1):
        await insert_mention(
            stack.connection, SIGNED, ordinal, "ORG", "norte energia", "Norte Energia"
        )
    await insert_mention(stack.connection, SIGNED, 1, "PERSON", "maria", "Maria")
    await insert_relation(stack.connection, PAID, 0, SHORT, MARIA)
    await insert_relation(stack.connection, SIGNED, 1, MARIA, LONG)
    await insert_claim(stack.connection, PAID, 0, SHORT, "paid", "5,000")


async def fetch_entity(
    stack: SearchStack, entity: UUID, readers: ReaderScope = None
) -> dict[str, Any]:
    caller = LOCAL_CALLER if readers is None else make_caller(readers=readers)
    found = await PgEntities(stack.pool).get_entity(caller, entity)
    assert found is not None
    return found


async def list_names(stack: SearchStack) -> dict[str, tuple[str, int]]:
    listed, _ = await PgEntities(stack.pool).list_entities(
        LOCAL_CALLER, text=None, kind=None, after=None, limit=50
    )
    return {one["name"]: (one["type"], one["mentions"]) for one in listed}


async def search_names(stack: SearchStack, *keys: str) -> set[UUID]:
    """Return the chunks that mention the entities of these names."""
    async with stack.search.open_snapshot() as snapshot:
        seeds = await snapshot.link_entities("default", keys)
        hits = await snapshot.search_graph(
            "default", seeds, GraphWalk(0, 5), filters=Filters(), k=50
        )
    return {hit.chunk_id for hit in hits}


async def test_merged_entity_is_read_and_searched_as_one_until_it_is_split(
    stack: SearchStack,
) -> None:
    await insert_network(stack)
    before = await list_names(stack)
    assert before == {"Norte": ("PERSON", 1), "Norte Energia": ("ORG", 2), "Maria": ("PERSON", 2)}
    own_chunks = await search_names(stack, "norte")
    await correct(stack, merge(SHORT, LONG, 5))

    assert await list_names(stack) == {"Norte Energia": ("ORG", 3), "Maria": ("PERSON", 2)}
    # The id of the part leads to the whole.
    whole = await fetch_entity(stack, SHORT)
    assert whole == await fetch_entity(stack, LONG)
    assert (whole["id"], whole["type"], whole["aliases"]) == (LONG, "ORG", ["Norte"])
    assert [(one["id"], one["type"], one["name"]) for one in whole["parts"]] == [
        (LONG, "ORG", "Norte Energia"),
        (SHORT, "PERSON", "Norte"),
    ]
    assert len(whole["occurrences"]) == 3 and len(whole["claims"]) == 1
    assert {(edge["subject_id"], edge["object_id"]) for edge in whole["relations"]} == {
        (LONG, MARIA),
        (MARIA, LONG),
    }
    graph = await PgEntities(stack.pool).get_subgraph(LOCAL_CALLER, [SHORT], hops=1, limit=10)
    assert {node["id"] for node in graph["nodes"]} == {LONG, MARIA}
    every_chunk = {PAID.chunk_id(0), SIGNED.chunk_id(0), SIGNED.chunk_id(1)}
    assert await search_names(stack, "norte") == every_chunk
    assert await search_names(stack, "norte energia") == every_chunk
    async with stack.search.open_snapshot() as snapshot:
        # A graph server has the whole alone.
        seeds = [EntitySeed("PERSON", "norte", 1.0), EntitySeed("PERSON", "maria", 1.0)]
        assert await snapshot.resolve_seeds("default", seeds) == [
            (LONG, "norte energia"),
            (MARIA, "maria"),
        ]

    await correct(stack, split(SHORT, 6))
    # Delivered again.
    await correct(stack, merge(SHORT, LONG, 5))
    assert await list_names(stack) == before
    assert await search_names(stack, "norte") == own_chunks == {PAID.chunk_id(0)}
    again = await fetch_entity(stack, SHORT)
    assert (again["id"], len(again["claims"]), len(again["relations"])) == (SHORT, 1, 1)


async def test_relation_between_merged_entities_is_left_out(stack: SearchStack) -> None:
    await insert_network(stack)
    await insert_relation(stack.connection, SIGNED, 0, SHORT, LONG)
    assert len((await fetch_entity(stack, LONG))["relations"]) == 2
    await correct(stack, merge(SHORT, LONG, 5))
    relations = (await fetch_entity(stack, LONG))["relations"]
    assert all(edge["subject_id"] != edge["object_id"] for edge in relations)
    assert len(relations) == 2


async def test_type_of_an_entity_holds_for_its_parts_until_it_is_reset(stack: SearchStack) -> None:
    await insert_network(stack)
    await correct(stack, retype(LONG, "UTILITY", 5), merge(SHORT, LONG, 6))
    assert await list_names(stack) == {"Norte Energia": ("UTILITY", 3), "Maria": ("PERSON", 2)}
    # What documents state stays known, and is linked by.
    whole = await fetch_entity(stack, LONG)
    assert {one["type"] for one in whole["parts"]} == {"ORG", "PERSON"}
    assert len(await search_names(stack, "norte energia")) == 3
    listed, _ = await PgEntities(stack.pool).list_entities(
        LOCAL_CALLER, text=None, kind="UTILITY", after=None, limit=5
    )
    assert [one["id"] for one in listed] == [LONG]
    await correct(stack, retype(LONG, None, 7))
    # Delivered again.
    await correct(stack, retype(LONG, "UTILITY", 5))
    assert (await list_names(stack))["Norte Energia"] == ("ORG", 3)
    assert (await fetch_entity(stack, SHORT, readers=("user:ana",)))["type"] == "ORG"


async def test_part_that_takes_in_its_whole_becomes_the_whole(stack: SearchStack) -> None:
    await insert_network(stack)
    # Two people decide at once; the later decision names the whole.
    await correct(stack, merge(SHORT, LONG, 5), merge(LONG, SHORT, 6))
    assert set(await list_names(stack)) == {"Norte", "Maria"}
    await correct(stack, merge(MARIA, LONG, 7), merge(SHORT, MARIA, 8))
    assert set(await list_names(stack)) == {"Maria"}
    assert {one["id"] for one in (await fetch_entity(stack, LONG))["parts"]} == {MARIA, SHORT, LONG}


async def test_reader_sees_only_the_parts_of_readable_documents(stack: SearchStack) -> None:
    await insert_network(stack)
    await correct(stack, merge(SHORT, LONG, 5))
    hidden = await fetch_entity(stack, LONG, readers=("user:ben",))
    assert (hidden["aliases"], hidden["mentions"], hidden["claims"]) == ([], 2, [])
    assert [one["name"] for one in hidden["parts"]] == ["Norte Energia"]
    # Nor does a part disclose the whole, whose documents the caller may not read.
    await stack.connection.execute(
        "update documents set readers = '{user:ben}' where id = $1", SIGNED.id
    )
    own = await fetch_entity(stack, SHORT, readers=("user:ana",))
    assert (own["name"], own["aliases"], own["mentions"]) == ("Norte", [], 1)
    assert "Norte Energia" not in str(own)


async def test_correction_of_another_tenant_has_no_effect(stack: SearchStack) -> None:
    await insert_network(stack)
    before = await list_names(stack)
    await correct(
        stack, merge(SHORT, LONG, 5, tenant="other"), retype(LONG, "STOLEN", 6, tenant="other")
    )
    assert await list_names(stack) == before
    async with stack.connection.transaction():
        await insert_through_ledger(stack.connection, PAID, "norte", "norte energia")
    assert (await list_names(stack))["Norte"] == ("PERSON", 2)
    # An alias of the entity is not moved by it either.
    await correct(stack, add_alias(SHORT, "the Payer", 7))
    assert (await fetch_entity(stack, SHORT))["added_aliases"] == ["the Payer"]


async def test_aliases_follow_their_entity_and_come_back(stack: SearchStack) -> None:
    await insert_network(stack)
    await correct(stack, add_alias(SHORT, "the Payer", 4))
    await correct(stack, merge(SHORT, LONG, 5))
    assert (await fetch_entity(stack, LONG))["added_aliases"] == ["the Payer"]
    async with stack.search.open_snapshot() as snapshot:
        [alias] = await snapshot.find_aliases("default", ["payer"])
    assert (alias.name, alias.type, alias.entity_key) == ("Norte Energia", "ORG", "norte energia")
    tables = PgEntities(stack.pool)
    assert await tables.find_unknown_aliases("default", LONG, ["payer"], with_found=False) == []
    # Removed from the whole, although it was given to the part.
    removal = EntityAmended(tenant="default", entity_id=LONG, remove_aliases=["payer"])
    await correct(stack, EventRow(removal, 6))
    assert (await fetch_entity(stack, LONG))["added_aliases"] == []
    async with stack.search.open_snapshot() as snapshot:
        assert await snapshot.find_aliases("default", ["payer"]) == []
    await correct(stack, split(SHORT, 7))
    assert (await fetch_entity(stack, SHORT))["added_aliases"] == ["the Payer"]


async def test_graph_views_have_the_merged_entity(stack: SearchStack) -> None:
    await insert_network(stack)
    await correct(stack, merge(SHORT, LONG, 5), retype(LONG, "UTILITY", 6))
    nodes = await read_view(stack.connection, "default", "graph_entities")
    assert [node for node in nodes if node["mentions"] > 2] == [
        {
            "id": str(LONG),
            "tenant": "default",
            "type": "UTILITY",
            "key": "norte energia",
            "name": "Norte Energia",
            "mentions": 3,
        }
    ]


def make_rows(doc: SampleDocument, subject: str, object_: str) -> list[Row]:
    """A mention of the subject, a claim about it, and its relation to the object."""
    owner = {"document_id": doc.id, "order": doc.order, "tenant": doc.tenant}
    place = {"chunk_id": doc.chunk_id(0), "char_start": 0, "char_end": 1}
    types = {"norte": "PERSON", "norte energia": "ORG"}
    number = random.getrandbits(62)
    return [
        MentionRow(
            id=content_id("mention", number),
            type=types[subject],
            key=subject,
            name=subject.title(),
            **place,
            **owner,
        ),
        RelationRow(
            id=content_id("relation", number),
            subject_type=types[subject],
            subject_key=subject,
            type="owns",
            object_type=types[object_],
            object_key=object_,
            weight=1.0,
            extractor="rules",
            **place,
            **owner,
        ),
        ClaimRow(
            id=content_id("claim", number),
            subject_type=types[subject],
            subject_key=subject,
            property="founded",
            value="1999",
            **place,
            **owner,
        ),
    ]


async def insert_through_ledger(
    connection: asyncpg.Connection, doc: SampleDocument, subject: str, object_: str
) -> None:
    event = ProjectedEvent(make_chunked("a", 1, ["x"]), tuple(make_rows(doc, subject, object_)))
    await copy_rows(connection, "g1", [event])


async def fetch_ids(connection: asyncpg.Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: [
            tuple(row)
            for row in await connection.fetch(f"select {columns} from {table} order by 1")
        ]
        for table, columns in {
            "entity_mentions": "entity_id, written_id, entity_type",
            "relations": "subject_id, written_subject_id, object_id, written_object_id",
            "claims": "subject_id, written_subject_id",
        }.items()
    }


async def test_rows_are_corrected_whether_they_come_before_meanwhile_or_after(
    stack: SearchStack, database: str
) -> None:
    corrected = {
        "entity_mentions": [(LONG, SHORT, "ORG")] * 3,
        "relations": [(LONG, SHORT, LONG, None)] * 3,
        "claims": [(LONG, SHORT)] * 3,
    }
    await insert_documents(stack.connection, PAID)
    await insert_through_ledger(stack.connection, PAID, "norte", "norte energia")
    other = await connect(database, name="worker")
    try:
        transaction = other.transaction()
        await transaction.start()
        await insert_through_ledger(other, PAID, "norte", "norte energia")
        # It waits: it would not see the rows that are not committed.
        correction = asyncio.create_task(correct(stack, merge(SHORT, LONG, 5)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(correction), 0.3)
        await transaction.commit()
        await correction
        await insert_through_ledger(other, PAID, "norte", "norte energia")
        assert await fetch_ids(other) == corrected
        await correct(stack, split(SHORT, 6))
        await insert_through_ledger(other, PAID, "norte", "norte energia")
        assert await fetch_ids(other) == {
            "entity_mentions": [(SHORT, None, None)] * 4,
            "relations": [(SHORT, None, LONG, None)] * 4,
            "claims": [(SHORT, None)] * 4,
        }
    finally:
        await other.close()


def draw_corrections(rng: random.Random, entities: Sequence[UUID]) -> list[Row]:
    rows: list[Row] = []
    for offset in range(1, 40):
        entity, other = rng.sample(entities, 2)
        rows.append(
            rng.choice(
                [
                    merge(entity, other, offset),
                    merge(entity, other, offset),
                    split(entity, offset),
                    retype(entity, rng.choice([None, "A", "B"]), offset),
                ]
            )
        )
    return rows


@pytest.mark.parametrize("seed", range(3))
async def test_rebuild_by_any_decisions_gives_the_same_entities(
    seed: int, stack: SearchStack
) -> None:
    rng = random.Random(seed)
    names = "abcdef"
    entities = [make_entity_id("default", "ORG", name) for name in names]
    doc = SampleDocument("doc", ["a b c d e f"])
    decisions = draw_corrections(rng, entities)

    async def fetch_rows() -> list[tuple[Any, ...]]:
        return [
            tuple(row)
            for row in await stack.connection.fetch(
                "select key, entity_id, written_id, entity_type from entity_mentions order by key"
            )
        ]

    await insert_documents(stack.connection, doc)
    for name in names:
        await insert_mention(stack.connection, doc, 0, "ORG", name)
    for place, decision in enumerate(decisions):
        await correct(stack, decision)
        # A part of the topic is delivered again, in its order.
        if rng.random() < 0.2:
            await correct(stack, *decisions[rng.randint(0, place) : place + 1])
    followed = await fetch_rows()
    # The rows of a rebuild are inserted when all decisions are in the table.
    await stack.connection.execute("delete from entity_mentions")
    owner = {"document_id": doc.id, "order": doc.order, "tenant": doc.tenant}
    place = {"chunk_id": doc.chunk_id(0), "char_start": 0, "char_end": 1}
    rows = [
        MentionRow(id=content_id("m", name), type="ORG", key=name, name=name, **place, **owner)
        for name in names
    ]
    event = ProjectedEvent(make_chunked("a", 1, ["x"]), tuple(rows))
    async with stack.connection.transaction():
        await copy_rows(stack.connection, "g1", [event])
    assert await fetch_rows() == followed
    # As does the topic alone.
    await stack.connection.execute("delete from entity_corrections")
    for row in followed:
        await stack.connection.execute(
            "update entity_mentions set entity_id = coalesce(written_id, entity_id), "
            "written_id = null, entity_type = null where key = $1",
            row[0],
        )
    await correct(stack, *decisions)
    assert await fetch_rows() == followed


async def test_erasure_of_the_tenant_takes_its_corrections(stack: SearchStack) -> None:
    await insert_network(stack)
    before = await list_names(stack)
    await correct(
        stack,
        merge(SHORT, LONG, 5),
        retype(MARIA, "ORG", 5),
        retype(MARIA, "ORG", 5, tenant="other"),
        *make_erasure_rows("tenant", UUID(int=9), 8),
    )
    left = await stack.connection.fetch("select tenant from entity_corrections")
    assert [row["tenant"] for row in left] == ["other"]
    # Documents that were sent again meanwhile.
    assert await list_names(stack) == before
