"""Every channel and view over documents that only some callers may read."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.ports.search import Seed
from schemas.principals import Principal
from schemas.questions import Filters
from sql.documents import PgDocuments
from sql.entities import PgEntities
from sql.records import PgRecords
from tests.callers import LOCAL, caller
from tests.rows import Doc, add, add_mention, add_relation
from tests.searching import Stand, stand

ANA, BEN = ("user:ana",), ("user:ben", "group:finance")
OPEN = Doc("open", ["herons nest on the weir"], vectors=[[1, 0, 0, 0]], title="Open", collection="birds")
SECRET = Doc("secret", ["herons nest in the vault"], vectors=[[1, 0, 0, 0]], title="Secret", collection="vaults", readers=ANA)
FINANCE = Doc("finance", ["herons nest in the ledger"], vectors=[[1, 0, 0, 0]], title="Finance", collection="birds", readers=("group:finance",))
NOBODY = Doc("nobody", ["herons nest nowhere"], vectors=[[1, 0, 0, 0]], title="Nobody", readers=())
FOREIGN = Doc("foreign", ["herons nest abroad"], vectors=[[1, 0, 0, 0]], title="Foreign", tenant="other")
EVERY = [OPEN, SECRET, FINANCE, NOBODY, FOREIGN]
VISIBLE = {ANA: {OPEN.id, SECRET.id}, BEN: {OPEN.id, FINANCE.id}, ("user:eve",): {OPEN.id}, None: {OPEN.id, SECRET.id, FINANCE.id, NOBODY.id}}


async def found_by_channels(desk: Stand, names: tuple[str, ...] | None, filters: Filters = Filters()) -> list[set[object]]:  # noqa: B008
    async with desk.search.snapshot(None, names) as snapshot:
        lexical = await snapshot.lexical("default", "herons nest", language="en", filters=filters, k=50, budget=1000)
        semantic = await snapshot.semantic("default", np.array([1, 0, 0, 0], np.float32), filters=filters, k=50)
        graph = await snapshot.graph("default", [Seed("bird", "heron", 1.0)], hops=1, fan_out=25, decay=0.5, filters=filters, k=50)
        chunks = await snapshot.chunks([doc.chunk_id(0) for doc in EVERY])
        parents = await snapshot.parents([doc.parent_id(0) for doc in EVERY])
        children = await snapshot.children([doc.parent_id(0) for doc in EVERY])
    hits = [{hit.document_id for hit in channel} for channel in (lexical.hits, semantic, graph)]
    own = [{view.document_id for view in views} - {FOREIGN.id} for views in (chunks.values(), parents.values(), children)]
    return [*hits, *own]


@pytest.mark.parametrize("few", [True, False])
async def test_every_channel_gives_only_what_the_caller_may_read(database: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr("sql.scope.FEW_DOCUMENTS", 0)
        monkeypatch.setattr("sql.scope.FEW_CHUNKS", 0)
    async with stand(database) as desk:
        await add(desk.connection, *EVERY)
        for doc in EVERY:
            await add_mention(desk.connection, doc, 0, "bird", "heron", "Heron")
        for names, documents in VISIBLE.items():
            assert await found_by_channels(desk, names) == [documents] * 6, names
        assert (await found_by_channels(desk, ANA, Filters(collections=["vaults"])))[:3] == [{SECRET.id}] * 3
        assert (await found_by_channels(desk, BEN, Filters(collections=["vaults"])))[:3] == [set()] * 3


async def test_graph_does_not_walk_relations_of_unreadable_documents(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, OPEN, SECRET)
        ann = await add_mention(desk.connection, SECRET, 0, "person", "ann")
        bob = await add_mention(desk.connection, OPEN, 0, "person", "bob")
        await add_relation(desk.connection, SECRET, 0, ann, bob)
        seeds = [Seed("person", "ann", 1.0)]
        for names, reached in ((ANA, {OPEN.id, SECRET.id}), (BEN, set())):
            async with desk.search.snapshot(None, names) as snapshot:
                assert bool(await snapshot.link("default", ["ann"])) == bool(reached)
                hits = await snapshot.graph("default", seeds, hops=2, fan_out=25, decay=0.5, filters=Filters(), k=50)
                assert {hit.document_id for hit in hits} == reached


async def test_lists_counts_and_entities_hold_readable_documents_only(database: str) -> None:
    async with stand(database) as desk:
        documents, records, entities = PgDocuments(desk.pool), PgRecords(desk.pool), PgEntities(desk.pool)
        await add(desk.connection, *EVERY)
        shared = await add_mention(desk.connection, OPEN, 0, "bird", "heron", "Heron")
        for doc, name in ((SECRET, "Secret Heron"), (FINANCE, "Finance Heron")):
            await add_mention(desk.connection, doc, 0, "bird", "heron", name)
        hidden = await add_mention(desk.connection, SECRET, 0, "person", "ann")
        await add_relation(desk.connection, SECRET, 0, hidden, shared)
        for names, readable in VISIBLE.items():
            who = caller(readers=names)
            listed, _ = await documents.find(who, external_id=None, collection=None, tag=None, state=None, after=None, limit=50)
            assert {item["document_id"] for item in listed} == readable
            assert sum(item["documents"] for item in await records.collections(who)) == len(readable)
            assert await documents.readable(who, [doc.id for doc in EVERY]) == readable
            for doc in EVERY:
                may = doc.id in readable
                found_document = await documents.get(who, doc.id)
                assert (found_document is not None) == may
                assert found_document is None or ("readers" in found_document) == (names is None), "names of others"
                assert (await documents.text(who, doc.id) is not None) == may
                assert bool((await documents.chunks(who, doc.id, after=-1, limit=5))[0]) == may
                assert bool((await documents.revisions(who, doc.id, after=None, limit=5))[0]) == may
            found = await entities.get(who, shared)
            assert found is not None
            assert found["mentions"] == len(readable & {OPEN.id, SECRET.id, FINANCE.id}) == len(found["occurrences"])
            assert ("Secret Heron" in [found["name"], *found["aliases"]]) == (SECRET.id in readable)
            assert (await entities.get(who, hidden) is not None) == (SECRET.id in readable)
            assert bool(found["relations"]) == (SECRET.id in readable)
            assert len((await entities.subgraph(who, [shared, hidden], hops=2, limit=10))["nodes"]) == (2 if SECRET.id in readable else 1)


async def test_text_stays_limited_until_a_revision_with_other_readers_is_visible(database: str) -> None:
    async with stand(database) as desk:
        documents, who = PgDocuments(desk.pool), caller(readers=BEN)
        await add(desk.connection, SECRET)
        later = Doc("secret", ["herons nest in public"], vectors=[[1, 0, 0, 0]], order=(1, 2), revision=2)
        await add(desk.connection, later, visible=False)
        mine, whole = await documents.text(who, SECRET.id), await documents.text(LOCAL, SECRET.id)
        assert mine and whole and (mine.markdown, whole.markdown) == ("herons nest in public", "herons nest in the vault")
        found = await found_by_channels(desk, BEN)
        assert found[:3] == [set()] * 3
        await desk.connection.execute("update visible set ord = $2 where document_id = $1", SECRET.id, [1, 2])
        assert (await found_by_channels(desk, BEN))[0] == {SECRET.id}


async def test_runs_of_others_are_not_there_for_limited_callers(database: str) -> None:
    async with stand(database) as desk:
        records = PgRecords(desk.pool)
        await desk.connection.execute(
            "insert into runs (id, tenant, kind, asked_by, received_at) select gen_random_uuid(), 'default', 'query', who, now() from unnest(array['jwt:ana', 'jwt:ben']) who"
        )
        everything, _ = await records.runs(LOCAL, after=None, limit=5)
        own, _ = await records.runs(Principal("jwt:ana", "default", "reader", ANA), after=None, limit=5)
        assert len(everything) == 2 and len(own) == 1
        for run in everything:
            mine = await records.run(Principal("jwt:ana", "default", "reader", ANA), run["run_id"])
            assert (mine is not None) == (run["run_id"] == own[0]["run_id"])
