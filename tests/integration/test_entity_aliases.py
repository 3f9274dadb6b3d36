"""Aliases that people give to entities: their order, their tenant and their readers."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from schemas.events import EntityAmended
from schemas.events.control import Scope
from schemas.rows import EventRow
from sql.inbox.shared_rows import write_shared_rows
from sql.index.entities import PgEntities
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.document_rows import SampleDocument, insert_documents, insert_mention
from tests.support.ledger_events import make_erasure_rows
from tests.support.search_stack import SearchStack


async def link(stack: SearchStack, tenant: str, *keys: str) -> Sequence[tuple[str, str, bool]]:
    async with stack.search.open_snapshot() as snapshot:
        return [
            (found.alias, found.name, found.is_written)
            for found in await snapshot.find_aliases(tenant, list(keys))
        ]


async def write(
    stack: SearchStack, entity: UUID, alias: str, offset: int, *, removed: bool = False
) -> None:
    changed = "remove_aliases" if removed else "add_aliases"
    decision = EntityAmended(tenant="default", entity_id=entity, **{changed: [alias]})
    await write_shared_rows(stack.connection, [EventRow(decision, offset)])


async def insert_company(stack: SearchStack) -> UUID:
    doc = SampleDocument("lease", ["Harbour Estates pays", "Harbour Estates signs"])
    await insert_documents(stack.connection, doc)
    for ordinal, name in enumerate(("Harbour Estates", "Harbour Estates")):
        entity = await insert_mention(stack.connection, doc, ordinal, "ORG", "harbour", name)
    return entity


async def test_latest_decision_about_an_alias_holds_in_any_order(stack: SearchStack) -> None:
    entity = await insert_company(stack)
    await write(stack, entity, "The Landlord", 7)
    assert await link(stack, "default", "landlord") == [("The Landlord", "Harbour Estates", False)]
    await write(stack, entity, "landlord", 9, removed=True)
    # Delivered again.
    await write(stack, entity, "The Landlord", 7)
    assert await link(stack, "default", "landlord") == []
    await write(stack, entity, "LÁNDLORD", 11)
    assert await link(stack, "default", "landlord") == [("LÁNDLORD", "Harbour Estates", False)]


async def test_alias_that_visible_texts_hold_is_told(stack: SearchStack) -> None:
    entity = await insert_company(stack)
    for offset, name in enumerate(("estates signs", "signs estates", "Signing")):
        await write(stack, entity, name, offset)
    found = await link(stack, "default", "estates signs", "signs estates", "signing")
    assert {alias: is_written for alias, _, is_written in found} == {
        "estates signs": True,
        "signs estates": False,
        "Signing": True,
    }


async def test_alias_links_only_in_its_tenant_and_to_readable_mentions(stack: SearchStack) -> None:
    entity = await insert_company(stack)
    await write(stack, entity, "the Landlord", 7)
    assert await link(stack, "other", "landlord") == []
    # An alias that another tenant's event gives to this entity has no effect here.
    foreign = EntityAmended(tenant="other", entity_id=entity, add_aliases=["the Intruder"])
    await write_shared_rows(stack.connection, [EventRow(foreign, 8)])
    assert await link(stack, "default", "intruder") == []
    assert await link(stack, "other", "intruder") == []
    entities = PgEntities(stack.pool)
    assert await entities.get_entity(make_caller(tenant="other"), entity) is None
    found = await entities.get_entity(LOCAL_CALLER, entity)
    assert found is not None and found["added_aliases"] == ["the Landlord"]
    await stack.connection.execute("update documents set readers = '{user:ana}'")
    async with stack.search.open_snapshot(readers=("user:ben",)) as snapshot:
        assert not await snapshot.find_aliases("default", ["landlord"])


async def test_similar_names_are_found_by_their_beginning_in_one_tenant(stack: SearchStack) -> None:
    async def find(name: str, tenant: str = "default") -> list[tuple[str, str, bool]]:
        async with stack.search.open_snapshot() as snapshot:
            found = await snapshot.find_similar_names(tenant, [name], compare)
        return [(one.key, one.entity_key, one.is_written) for one in found]

    def compare(name: str, key: str) -> bool:
        compared.append(key)
        return key.startswith("harbour")

    compared: list[str] = []
    await insert_company(stack)
    doc = SampleDocument("more", ["harvest", "hazel", "harbours and harbour trusts"])
    await insert_documents(stack.connection, doc)
    for key in ("harvest", "hazel", "harbours", "harbour trusts"):
        await insert_mention(stack.connection, doc, 0, "ORG", key)
        await insert_mention(stack.connection, doc, 1, "ORG", key)
    assert await find("harborr") == [("harborr", "harbour", False), ("harborr", "harbours", False)]
    assert sorted(compared) == ["harbour", "harbours", "harvest"]
    assert await find("harvests") == [("harvests", "harbour", True), ("harvests", "harbours", True)]
    assert await find("harborr", "other") == []
    assert await find("harvest") == []


async def test_rebuild_restores_no_alias_of_an_erased_tenant(stack: SearchStack) -> None:
    receipt = UUID(int=9)
    aliases = [
        EventRow(EntityAmended(tenant=tenant, entity_id=UUID(int=1), add_aliases=[alias]), offset)
        for tenant, alias, offset in (
            ("default", "Erased", 5),
            ("other", "Foreign", 5),
            ("default", "Later", 12),
        )
    ]
    scopes: tuple[Scope, ...] = ("collection", "tenant")
    for scope in scopes:
        erasure = make_erasure_rows(scope, receipt, 8)
        await write_shared_rows(stack.connection, [*aliases, *erasure])
        left = await stack.connection.fetch("select alias from entity_aliases order by 1")
        erased = ["Erased"] if scope == "collection" else []
        assert [row["alias"] for row in left] == [*erased, "Foreign", "Later"]
        receipt = UUID(int=10)


async def test_name_in_hidden_document_does_not_end_a_correction(stack: SearchStack) -> None:
    async def find(readers: tuple[str, ...] | None) -> list[str]:
        async with stack.search.open_snapshot(None, readers) as snapshot:
            found = await snapshot.find_similar_names(
                "default", ["fonseka"], lambda name, key: key == "fonseca"
            )
        return [alias.entity_key for alias in found]

    shown = SampleDocument("open", ["Maria Fonseca signs"])
    hidden = SampleDocument("hidden", ["Maria Fonseka signs"], readers=("user:ana",))
    pending = SampleDocument("pending", ["Maria Fonseka signs"])
    await insert_documents(stack.connection, shown)
    await insert_mention(stack.connection, shown, 0, "PERSON", "fonseca", "Fonseca")
    assert await find(("user:bob",)) == ["fonseca"]
    await insert_documents(stack.connection, hidden)
    await insert_mention(stack.connection, hidden, 0, "PERSON", "fonseka", "Fonseka")
    assert await find(("user:bob",)) == ["fonseca"]
    assert await find(("user:ana",)) == await find(None) == []
    await stack.connection.execute("delete from visible where document_id = $1", hidden.id)
    await insert_documents(stack.connection, pending, visible=False)
    await insert_mention(stack.connection, pending, 0, "PERSON", "fonseka", "Fonseka")
    assert await find(None) == ["fonseca"]


async def test_entity_is_found_by_whole_name_or_alias_of_what_the_caller_reads(
    stack: SearchStack,
) -> None:
    entity = await insert_company(stack)
    await write(stack, entity, "the Landlord", 7)
    entities = PgEntities(stack.pool)

    async def find(name: str, tenant: str = "default", kind: str | None = None) -> list[UUID]:
        caller = make_caller(tenant=tenant)
        return [body["id"] for body in await entities.find_by_name(caller, name, kind)]

    for name in ("Harbour Estates", "harbour estates", "The Landlord"):
        assert await find(name) == [entity]
    for name in ("Harbour", "Landlord", "Harbour Estates ", "%", ""):
        assert await find(name) == []
    assert await find("Harbour Estates", kind="ORG") == [entity]
    assert await find("Harbour Estates", kind="PERSON") == []
    assert await find("Harbour Estates", tenant="other") == []
    await stack.connection.execute("update documents set readers = '{user:ana}'")
    ben = make_caller(readers=("user:ben",))
    assert await entities.find_by_name(ben, "Harbour Estates", None) == []
