"""Every retrieval channel and view respects the readers of a document."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.ports.search import EntitySeed, GraphWalk
from schemas.questions import Filters
from sql.catalog.collections import PgCollections
from sql.catalog.documents import PgDocuments
from sql.index.entities import PgEntities
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.document_rows import (
    SampleDocument,
    insert_documents,
    insert_mention,
    insert_relation,
)
from tests.support.search_stack import SearchStack

NO_FILTERS: dict[str, None] = dict.fromkeys(("external_id", "collection", "tag", "state"))
ANA, BEN = ("user:ana",), ("user:ben", "group:finance")
OPEN_DOCUMENT = SampleDocument(
    "open", ["herons nest on the weir"], vectors=[[1, 0, 0, 0]], title="Open", collection="birds"
)
SECRET_DOCUMENT = SampleDocument(
    "secret",
    ["herons nest in the vault"],
    vectors=[[1, 0, 0, 0]],
    title="Secret",
    collection="vaults",
    readers=ANA,
)
FINANCE_DOCUMENT = SampleDocument(
    "finance",
    ["herons nest in the ledger"],
    vectors=[[1, 0, 0, 0]],
    title="Finance",
    collection="birds",
    readers=("group:finance",),
)
UNREADABLE_DOCUMENT = SampleDocument(
    "nobody", ["herons nest nowhere"], vectors=[[1, 0, 0, 0]], title="Nobody", readers=()
)
OTHER_TENANT_DOCUMENT = SampleDocument(
    "foreign", ["herons nest abroad"], vectors=[[1, 0, 0, 0]], title="Foreign", tenant="other"
)
ALL_DOCUMENTS = [
    OPEN_DOCUMENT,
    SECRET_DOCUMENT,
    FINANCE_DOCUMENT,
    UNREADABLE_DOCUMENT,
    OTHER_TENANT_DOCUMENT,
]
VISIBLE_BY_READERS = {
    ANA: {OPEN_DOCUMENT.id, SECRET_DOCUMENT.id},
    BEN: {OPEN_DOCUMENT.id, FINANCE_DOCUMENT.id},
    ("user:eve",): {OPEN_DOCUMENT.id},
    None: {OPEN_DOCUMENT.id, SECRET_DOCUMENT.id, FINANCE_DOCUMENT.id, UNREADABLE_DOCUMENT.id},
}


async def search_all_retrievers(
    stack: SearchStack,
    names: tuple[str, ...] | None,
    filters: Filters = Filters(),  # noqa: B008
) -> tuple[list[set[object]], list[set[object]]]:
    """Return the documents that each channel finds, and those whose chunks can be fetched."""
    async with stack.search.open_snapshot(None, names) as snapshot:
        lexical = await snapshot.search_lexical(
            "default", "herons nest", language="en", filters=filters, k=50, budget=1000
        )
        semantic = await snapshot.search_semantic(
            "default", np.array([1, 0, 0, 0], np.float32), filters=filters, k=50
        )
        graph = await snapshot.search_graph(
            "default", [EntitySeed("bird", "heron", 1.0)], GraphWalk(1, 25), filters=filters, k=50
        )
        chunks = await snapshot.fetch_chunks([doc.chunk_id(0) for doc in ALL_DOCUMENTS], "")
        parents = await snapshot.fetch_parents([doc.parent_id(0) for doc in ALL_DOCUMENTS])
        children = await snapshot.fetch_children([doc.parent_id(0) for doc in ALL_DOCUMENTS])
    found = [{hit.document_id for hit in channel} for channel in (lexical.hits, semantic, graph)]
    fetched = [
        {view.document_id for view in views} - {OTHER_TENANT_DOCUMENT.id}
        for views in (chunks.values(), parents.values(), children)
    ]
    return found, fetched


@pytest.mark.parametrize("few", [True, False])
async def test_every_retriever_returns_only_readable_documents(
    stack: SearchStack, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not few:
        monkeypatch.setattr("sql.index.snapshot.MAX_LISTED_DOCUMENTS", 0)
    await insert_documents(stack.connection, *ALL_DOCUMENTS)
    for doc in ALL_DOCUMENTS:
        await insert_mention(stack.connection, doc, 0, "bird", "heron", "Heron")
    for names, documents in VISIBLE_BY_READERS.items():
        found, fetched = await search_all_retrievers(stack, names)
        assert all(ids == documents for ids in (*found, *fetched)), names
    for names, expected in ((ANA, {SECRET_DOCUMENT.id}), (BEN, set())):
        found, _ = await search_all_retrievers(stack, names, Filters(collections=["vaults"]))
        assert all(ids == expected for ids in found), names


async def test_graph_skips_relations_of_unreadable_documents(stack: SearchStack) -> None:
    await insert_documents(stack.connection, OPEN_DOCUMENT, SECRET_DOCUMENT)
    ann = await insert_mention(stack.connection, SECRET_DOCUMENT, 0, "person", "ann")
    bob = await insert_mention(stack.connection, OPEN_DOCUMENT, 0, "person", "bob")
    await insert_relation(stack.connection, SECRET_DOCUMENT, 0, ann, bob)
    seeds = [EntitySeed("person", "ann", 1.0)]
    for names, reached in ((ANA, {OPEN_DOCUMENT.id, SECRET_DOCUMENT.id}), (BEN, set())):
        async with stack.search.open_snapshot(None, names) as snapshot:
            assert bool(await snapshot.link_entities("default", ["ann"])) == bool(reached)
            hits = await snapshot.search_graph(
                "default", seeds, GraphWalk(2, 25), filters=Filters(), k=50
            )
            assert {hit.document_id for hit in hits} == reached


async def test_lists_counts_and_entities_include_only_readable_documents(
    stack: SearchStack,
) -> None:
    documents, collections, entities = (
        PgDocuments(stack.pool),
        PgCollections(stack.pool),
        PgEntities(stack.pool),
    )
    await insert_documents(stack.connection, *ALL_DOCUMENTS)
    shared = await insert_mention(stack.connection, OPEN_DOCUMENT, 0, "bird", "heron", "Heron")
    for doc, name in ((SECRET_DOCUMENT, "Secret Heron"), (FINANCE_DOCUMENT, "Finance Heron")):
        await insert_mention(stack.connection, doc, 0, "bird", "heron", name)
    hidden = await insert_mention(stack.connection, SECRET_DOCUMENT, 0, "person", "ann")
    await insert_relation(stack.connection, SECRET_DOCUMENT, 0, hidden, shared)
    for names, readable in VISIBLE_BY_READERS.items():
        who = make_caller(readers=names)
        listed, _ = await documents.find_documents(who, **NO_FILTERS, after=None, limit=50)
        assert {item["document_id"] for item in listed} == readable
        for doc in ALL_DOCUMENTS:
            for called in (str(doc.id), str(doc.id)[:13], doc.external_id):
                found_by_name, _ = await documents.find_documents(
                    who, **NO_FILTERS, name=called, after=None, limit=50
                )
                found_ids = {item["document_id"] for item in found_by_name}
                assert found_ids == {doc.id} & readable, called
        assert sum(item["documents"] for item in await collections.list_collections(who)) == len(
            readable
        )
        assert await documents.filter_readable(who, [doc.id for doc in ALL_DOCUMENTS]) == readable
        for doc in ALL_DOCUMENTS:
            may = doc.id in readable
            found_document = await documents.fetch_document(who, doc.id)
            assert (found_document is not None) == may
            assert found_document is None or ("readers" in found_document) == (names is None), (
                "names of others"
            )
            assert (await documents.fetch_text(who, doc.id) is not None) == may
            assert (await documents.fetch_text(who, doc.id, 1) is not None) == may
            assert (await documents.fetch_revision_file(who, doc.id, 1) is not None) == may
            assert bool((await documents.fetch_chunks(who, doc.id, after=-1, limit=5))[0]) == may
            assert bool((await documents.fetch_entities(who, doc.id, after=None, limit=5))[0]) == (
                may and doc is not UNREADABLE_DOCUMENT
            )
            assert (
                bool((await documents.fetch_revisions(who, doc.id, after=None, limit=5))[0]) == may
            )
        found = await entities.get_entity(who, shared)
        assert found is not None
        assert (
            found["mentions"]
            == len(readable & {OPEN_DOCUMENT.id, SECRET_DOCUMENT.id, FINANCE_DOCUMENT.id})
            == len(found["occurrences"])
        )
        assert ("Secret Heron" in [found["name"], *found["aliases"]]) == (
            SECRET_DOCUMENT.id in readable
        )
        assert (await entities.get_entity(who, hidden) is not None) == (
            SECRET_DOCUMENT.id in readable
        )
        assert bool(found["relations"]) == (SECRET_DOCUMENT.id in readable)
        assert len(
            (await entities.get_subgraph(who, [shared, hidden], hops=2, limit=10))["nodes"]
        ) == (2 if SECRET_DOCUMENT.id in readable else 1)


async def test_old_readers_apply_until_new_revision_is_visible(stack: SearchStack) -> None:
    documents, who = PgDocuments(stack.pool), make_caller(readers=BEN)
    await insert_documents(stack.connection, SECRET_DOCUMENT)
    later = SampleDocument(
        "secret", ["herons nest in public"], vectors=[[1, 0, 0, 0]], order=(1, 2), revision=2
    )
    await insert_documents(stack.connection, later, visible=False)
    mine, whole = (
        await documents.fetch_text(who, SECRET_DOCUMENT.id),
        await documents.fetch_text(LOCAL_CALLER, SECRET_DOCUMENT.id),
    )
    assert (
        mine
        and whole
        and (mine.markdown, whole.markdown) == ("herons nest in public", "herons nest in the vault")
    )
    for revision, may in ((1, False), (2, True), (3, False)):
        assert (await documents.fetch_text(who, SECRET_DOCUMENT.id, revision) is not None) == may
        assert (
            await documents.fetch_revision_file(who, SECRET_DOCUMENT.id, revision) is not None
        ) == may
    found, _ = await search_all_retrievers(stack, BEN)
    assert not any(found)
    await stack.connection.execute(
        "update visible set ord = $2 where document_id = $1", SECRET_DOCUMENT.id, [1, 2]
    )
    (lexical, *_), _ = await search_all_retrievers(stack, BEN)
    assert lexical == {SECRET_DOCUMENT.id}
