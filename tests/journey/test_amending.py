from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from streams.topics import OUTCOMES
from tests.both_logs import on_both_logs
from tests.journey.conftest import PATIENCE_S, World

NOTE = "The lock keeper of the lower basin opens the sluice at six."


async def amended(world: World, document: str, **said: Any) -> dict[str, Any]:
    response = await world.http.patch(f"/v1/documents/{document}", json=said)
    assert response.status_code == 202, response.text
    return await world.ended(response.json())


async def shown(world: World, document: str) -> dict[str, Any]:
    return dict((await world.http.get(f"/v1/documents/{document}")).json())


@on_both_logs
async def test_an_amended_document_is_filtered_and_shown_by_what_was_said_last_and_no_stage_behind_hears_of_it(world: World) -> None:
    document = (await world.searchable(NOTE, external_id="lock", title="Locks", tags=["water"], metadata=json.dumps({"year": 2025, "old": 1})))["document_id"]
    before = await facts(world, "embedded"), await facts(world, "chunked"), await facts(world, "ocr_done")
    status = await amended(world, document, title="Sluices", tags=["gates"], collection="basin", metadata={"year": 2026, "old": None})
    assert status["state"] == "searchable"
    found = await shown(world, document)
    assert [found[name] for name in ("title", "tags", "collection", "metadata")] == ["Sluices", ["gates"], "basin", {"year": 2026}]
    for filters, hits in [
        ({"tags": ["gates"], "collections": ["basin"], "metadata": {"year": 2026}}, 1),
        ({"tags": ["water"]}, 0),
        ({"metadata": {"old": 1}}, 0),
    ]:
        assert [result["title"] for result in await world.search("lock keeper", filters=filters)] == ["Sluices"] * hits
    assert (await facts(world, "embedded"), await facts(world, "chunked"), await facts(world, "ocr_done")) == before


async def facts(world: World, topic: str) -> int:
    return sum([1 async for _ in world.worker.storage.log.read(topic)])


@on_both_logs
async def test_an_amended_title_outlives_a_revision_that_gives_none_and_is_indexed_with_it(world: World) -> None:
    document = (await world.searchable(NOTE, external_id="lock"))["document_id"]
    await amended(world, document, title="Zanzibar ledger")
    assert await world.search("Zanzibar", channels=["lexical"]) == []
    await world.searchable(NOTE + " At noon it is closed.", external_id="lock")
    assert [result["title"] for result in await world.search("Zanzibar", channels=["lexical"])] == ["Zanzibar ledger"]
    await world.searchable(NOTE + " At night it is open.", external_id="lock", title="Given again")
    assert (await shown(world, document))["title"] == "Given again"


@on_both_logs
async def test_its_producer_hears_what_became_of_an_amendment(world: World) -> None:
    document = (await world.searchable(NOTE, external_id="lock"))["document_id"]
    await amended(world, document, tags=["gates"])
    said = await outcomes(world, 2)
    assert {(outcome["code"], outcome["chunks_count"], outcome["document_id"]) for outcome in said} == {(None, 1, document), ("AMENDED", 1, document)}


async def outcomes(world: World, count: int) -> list[dict[str, Any]]:
    """Waited for: a document is searchable before its producer is told so. Two stages say these, so neither is the first."""
    async with asyncio.timeout(PATIENCE_S):
        while await facts(world, OUTCOMES) < count:
            await asyncio.sleep(0.02)
    return [json.loads(stored.record.value or b"{}") async for stored in world.worker.storage.log.read(OUTCOMES)]


@pytest.mark.parametrize("said", [{}, {"title": None}, {"metadata": {}}])
async def test_an_amendment_that_says_nothing_is_refused_at_once(world: World, said: dict[str, Any]) -> None:
    document = (await world.searchable(NOTE))["document_id"]
    response = await world.http.patch(f"/v1/documents/{document}", json=said)
    assert (response.status_code, response.json()["code"]) == (422, "NOTHING_TO_AMEND")


async def test_a_withdrawn_document_is_not_amended(world: World) -> None:
    document = (await world.searchable(NOTE))["document_id"]
    await world.ended((await world.http.delete(f"/v1/documents/{document}")).json())
    assert (await world.http.patch(f"/v1/documents/{document}", json={"title": "t"})).status_code == 404
