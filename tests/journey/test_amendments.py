from __future__ import annotations

import json
from typing import Any

from schemas.topics import OUTCOMES
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka, long_on_postgres

NOTE = "The lock keeper of the lower basin opens the sluice at six."


async def amend_and_wait(world: ApiWorld, document: str, **said: Any) -> dict[str, Any]:
    response = await world.http.patch(f"/v1/documents/{document}", json=said)
    assert response.status_code == 202, response.text
    return await world.wait_until_final(response.json())


async def fetch_document(world: ApiWorld, document: str) -> dict[str, Any]:
    return dict((await world.http.get(f"/v1/documents/{document}")).json())


@long_on_postgres
async def test_amendment_updates_filters_without_reprocessing(world: ApiWorld) -> None:
    document = (
        await world.ingest_until_searchable(
            NOTE,
            external_id="lock",
            title="Locks",
            tags=["water"],
            metadata=json.dumps({"year": 2025, "old": 1}),
        )
    )["document_id"]
    before = (
        await count_events(world, "embedded"),
        await count_events(world, "chunked"),
        await count_events(world, "ocr_done"),
    )
    status = await amend_and_wait(
        world,
        document,
        title="Sluices",
        tags=["gates"],
        collection="basin",
        metadata={"year": 2026, "old": None},
    )
    assert status["state"] == "searchable"
    found = await fetch_document(world, document)
    assert [found[name] for name in ("title", "tags", "collection", "metadata")] == [
        "Sluices",
        ["gates"],
        "basin",
        {"year": 2026},
    ]
    for filters, hits in [
        ({"tags": ["gates"], "collections": ["basin"], "metadata": {"year": 2026}}, 1),
        ({"tags": ["water"]}, 0),
        ({"metadata": {"old": 1}}, 0),
    ]:
        assert [
            result["title"] for result in await world.search("lock keeper", filters=filters)
        ] == ["Sluices"] * hits
    assert (
        await count_events(world, "embedded"),
        await count_events(world, "chunked"),
        await count_events(world, "ocr_done"),
    ) == before


async def count_events(world: ApiWorld, topic: str) -> int:
    return sum([1 async for _ in world.worker.storage.log.read(topic)])


@long_on_kafka
async def test_amended_title_is_kept_and_indexed_with_next_revision(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(NOTE, external_id="lock"))["document_id"]
    await amend_and_wait(world, document, title="Zanzibar ledger")
    assert await world.search("Zanzibar", channels=["lexical"]) == []
    await world.ingest_until_searchable(NOTE + " At noon it is closed.", external_id="lock")
    assert [result["title"] for result in await world.search("Zanzibar", channels=["lexical"])] == [
        "Zanzibar ledger"
    ]
    await world.ingest_until_searchable(
        NOTE + " At night it is open.", external_id="lock", title="Given again"
    )
    assert (await fetch_document(world, document))["title"] == "Given again"


@long_on_kafka
async def test_amendment_outcome_is_published(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(NOTE, external_id="lock"))["document_id"]
    await amend_and_wait(world, document, tags=["gates"])
    outcomes = await wait_for_outcomes(world, 2)
    assert {
        (outcome["code"], outcome["chunks_count"], outcome["document_id"]) for outcome in outcomes
    } == {(None, 1, document), ("AMENDED", 1, document)}


async def wait_for_outcomes(world: ApiWorld, count: int) -> list[dict[str, Any]]:
    """Wait for `count` outcomes and return them in no particular order.

    A document becomes searchable before its outcome is published, and two stages publish outcomes.
    """
    await eventually(lambda: count_events(world, OUTCOMES), lambda outcomes: outcomes >= count)
    return [
        json.loads(stored.record.value or b"{}")
        async for stored in world.worker.storage.log.read(OUTCOMES)
    ]


async def test_empty_amendment_is_rejected(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(NOTE))["document_id"]
    amendments: list[dict[str, Any]] = [{}, {"title": None}, {"metadata": {}}]
    for amendment in amendments:
        response = await world.http.patch(f"/v1/documents/{document}", json=amendment)
        assert (response.status_code, response.json()["code"]) == (422, "NOTHING_TO_AMEND")


async def test_withdrawn_document_cannot_be_amended(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(NOTE))["document_id"]
    await world.wait_until_final((await world.http.delete(f"/v1/documents/{document}")).json())
    assert (
        await world.http.patch(f"/v1/documents/{document}", json={"title": "t"})
    ).status_code == 404
