"""Aliases that documents state: where they hold, whose they are, and that they go with their
documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import asyncpg

from schemas.events import EntityAmended
from schemas.ids import content_id, make_document_id
from schemas.questions import Filters
from schemas.rows import EventRow
from services.erasure.service import ErasureService
from services.generations.reindex import start_rebuild
from services.publishing import EventPublisher
from sql.database import close_pool, open_pool
from sql.inbox.shared_rows import write_shared_rows
from sql.index.entities import PgEntities
from sql.index.search import PgSearch, PgSnapshot
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.document_rows import SampleDocument, insert_documents, insert_mention
from tests.support.pipeline import Pipeline, run_pipeline
from tests.support.search_stack import SearchStack

CONTRACTS = {
    "north": 'Acme Robotics GmbH (the "Licensor") pays. The European Central Bank (ECB) met.',
    "south": 'Norte Energia S.A. (the "Licensor") pays. The English Cricket Board (ECB) met.',
    "plain": "Bolt Inc. pays the World Health Organization (WHO). Nothing else is stated here.",
}
NORTH, SOUTH = (make_document_id("default", "", name) for name in ("north", "south"))
ALIASES = (
    "select document_id, ord, chunk_id, subject_id, property, value, char_start, char_end "
    "from claims where generation = $1 and property in ('abbreviation', 'defined_term') "
    "order by document_id, char_start"
)


async def find(
    snapshot: PgSnapshot, key: str, *documents: UUID, filters: Filters | None = None
) -> list[str]:
    found = (
        await snapshot.find_stated_aliases(
            "default", [key], documents=documents, filters=filters or Filters()
        )
        if documents or filters
        else await snapshot.find_aliases("default", [key])
    )
    return sorted(alias.name for alias in found)


async def find_in(database: str, key: str, *documents: UUID) -> list[str]:
    pool = await open_pool(database, size=4, name="search")
    try:
        async with PgSearch(pool).open_snapshot() as snapshot:
            return await find(snapshot, key, *documents)
    finally:
        await close_pool(pool)


async def test_stated_aliases_go_with_their_document(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database) as at_work:
        await at_work.push_and_wait(CONTRACTS)
        # A defined term holds in its document alone, and an abbreviation everywhere.
        assert await find_in(database, "licensor") == []
        assert await find_in(database, "licensor", NORTH) == ["Acme Robotics GmbH"]
        assert await find_in(database, "licensor", SOUTH) == ["Norte Energia S.A."]
        assert await find_in(database, "who") == ["World Health Organization"]
        assert await find_in(database, "ecb", SOUTH) == ["English Cricket Board"]
        assert await find_in(database, "ecb") == ["English Cricket Board", "European Central Bank"]

        await at_work.push_and_wait({"south": "Norte Energia S.A. pays. Nothing is defined."})
        assert await find_in(database, "licensor", SOUTH) == []
        assert await find_in(database, "ecb") == ["European Central Bank"]

        storage = at_work.worker.storage
        publisher = EventPublisher(storage.log, storage.codec)
        erasures = ErasureService(storage.pool, publisher)
        await erasures.request_erasure("default", "document", str(NORTH))
        await at_work.wait_for(lambda: is_empty(at_work, NORTH))
        assert await find_in(database, "licensor", NORTH) == []
        assert await find_in(database, "ecb") == []


async def is_empty(at_work: Pipeline, document_id: UUID) -> bool:
    count = "select count(*) from claims where document_id = $1"
    return bool(await at_work.pool.fetchval(count, document_id) == 0)


async def test_rebuild_gives_the_same_aliases(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database) as at_work:
        await at_work.push_and_wait(CONTRACTS)
        before = await at_work.pool.fetch(ALIASES, "g1")
        assert [row["value"] for row in before].count("Licensor") == 2 and len(before) == 5
        name = await start_rebuild(
            at_work.worker.storage, at_work.worker.builder.decisions, keep_previous=True
        )
        await at_work.wait_for_state(name, "live")
        assert await at_work.pool.fetch(ALIASES, name) == before


async def insert_alias(
    connection: asyncpg.Connection, doc: SampleDocument, name: str, alias: str, kind: str
) -> UUID:
    """Insert a company, mentioned in the document's first chunk, with an alias."""
    entity = await insert_mention(connection, doc, 0, "ORG", name.lower(), name)
    await connection.execute(
        """insert into claims (generation, document_id, ord, tenant, id, chunk_id, subject_id,
             property, value, char_start, char_end)
           values ('g1', $1, $2, $3, $4, $5, $6, $7, $8, 0, 1)""",
        *(doc.id, list(doc.order), doc.tenant, content_id("claim", doc.id, name, alias)),
        *(doc.chunk_id(0), entity, kind, alias),
    )
    return entity


async def insert_contracts(stack: SearchStack) -> Sequence[UUID]:
    entities = []
    for place, company in (("north", "Acme"), ("south", "Norte")):
        doc = SampleDocument(place, [f"{company} signs"], collection=place)
        await insert_documents(stack.connection, doc)
        entities.append(
            await insert_alias(stack.connection, doc, company, "Licensor", "defined_term")
        )
        await insert_alias(stack.connection, doc, "World Bank", "WB", "abbreviation")
    return entities


async def decide(stack: SearchStack, entity: UUID, alias: str, *, removed: bool = False) -> None:
    changed = "remove_aliases" if removed else "add_aliases"
    decision = EntityAmended(tenant="default", entity_id=entity, **{changed: [alias]})
    await write_shared_rows(stack.connection, [EventRow(decision, 7)])


async def test_defined_term_is_found_in_the_documents_of_a_filter(stack: SearchStack) -> None:
    await insert_contracts(stack)
    async with stack.search.open_snapshot() as snapshot:
        both = Filters(collections=["north", "south"])
        assert await find(snapshot, "licensor", filters=both) == ["Acme", "Norte"]
        north = Filters(collections=["north"])
        assert await find(snapshot, "licensor", filters=north) == ["Acme"]
        assert await find(snapshot, "licensor", filters=Filters(collections=["none"])) == []
        # Two documents agree.
        assert await find(snapshot, "wb") == ["World Bank"]


async def test_decisions_of_people_precede_stated_aliases(stack: SearchStack) -> None:
    acme, norte = await insert_contracts(stack)
    entities = PgEntities(stack.pool)

    async def list_found(entity: UUID) -> list[tuple[str, str]]:
        body = await entities.get_entity(LOCAL_CALLER, entity)
        assert body is not None and body["claims"] == []
        return [(found["alias"], found["kind"]) for found in body["found_aliases"]]

    async def find_unknown(entity: UUID) -> list[str]:
        aliases = ["the LICENSOR"]
        return await entities.find_unknown_aliases("default", entity, aliases, with_found=True)

    assert await list_found(acme) == [("Licensor", "defined_term")]
    assert await find_unknown(acme) == []
    await decide(stack, acme, "the licensor", removed=True)
    assert await list_found(acme) == []
    assert await list_found(norte) == [("Licensor", "defined_term")]
    assert await find_unknown(acme) == ["the LICENSOR"]
    # Given to another entity, it names that one everywhere.
    await decide(stack, norte, "WB")
    async with stack.search.open_snapshot() as snapshot:
        assert await find(snapshot, "licensor", NORTH) == []
        assert await find(snapshot, "licensor", SOUTH) == ["Norte"]
        assert await find(snapshot, "wb") == ["Norte"]
        assert await find(snapshot, "wb", NORTH) == []


async def test_stated_alias_links_only_in_its_tenant_and_for_its_readers(
    stack: SearchStack,
) -> None:
    acme, _ = await insert_contracts(stack)
    await stack.connection.execute(
        "update documents set readers = '{user:ana}' where id = $1", NORTH
    )
    async with stack.search.open_snapshot(readers=("user:ben",)) as snapshot:
        assert await find(snapshot, "licensor", NORTH) == []
        assert await find(snapshot, "licensor", SOUTH) == ["Norte"]
    async with stack.search.open_snapshot() as snapshot:
        everything = Filters(collections=["north", "south"])
        for documents in ((NORTH, SOUTH), ()):
            assert not await snapshot.find_stated_aliases(
                "other", ["licensor", "wb"], documents=documents, filters=everything
            )
        assert not await snapshot.find_aliases("other", ["wb"])
    other = make_caller(tenant="other")
    assert await PgEntities(stack.pool).get_entity(other, acme) is None
