"""Cached answers, and the changes that invalidate them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.lineage import diff_run, fetch_lineage, rerun_query, wait_until_recorded

NOTE = "The toll of the lower lock is four pence for each boat."
QUESTION = "What is the toll of the lower lock?"


async def ask_until_cached(world: ApiWorld, **options: Any) -> dict[str, Any]:
    """Ask until the answer comes from the cache."""
    for _ in range(20):
        answer = await world.ask(QUESTION, **options)
        if answer["trace"]["cached"]:
            return answer
    raise AssertionError("it never came from memory")


async def edit_document(world: ApiWorld, document: str) -> None:
    await world.ingest_until_searchable(NOTE.replace("four", "nine"), external_id="toll")


async def amend_document(world: ApiWorld, document: str) -> None:
    response = await world.http.patch(f"/v1/documents/{document}", json={"tags": ["closed"]})
    assert (await world.wait_until_final(response.json()))["state"] == "searchable"


async def delete_document(world: ApiWorld, document: str) -> None:
    assert (
        await world.wait_until_final((await world.http.delete(f"/v1/documents/{document}")).json())
    )["state"] == "withdrawn"


async def erase_document(world: ApiWorld, document: str) -> None:
    response = await world.http.post("/v1/erasures", json={"scope": "document", "name": document})
    assert response.status_code == 202, response.text

    async def fetch_status_code() -> int:
        return (await world.http.get(f"/v1/documents/{document}")).status_code

    await eventually(fetch_status_code, lambda status: status == 404)


CHANGES = {
    "edited": (edit_document, "nine pence"),
    "amended": (amend_document, None),
    "deleted": (delete_document, None),
    "erased": (erase_document, None),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_document_change_invalidates_cached_answer(world: ApiWorld, change: str) -> None:
    document = (await world.ingest_until_searchable(NOTE, external_id="toll", tags=["open"]))[
        "document_id"
    ]
    await world.ingest_until_searchable(
        "The upper lock has a keeper's house with a red roof.", external_id="roof", tags=["open"]
    )
    options = {"filters": {"tags": ["open"]}} if change == "amended" else {}
    before = await ask_until_cached(world, **options)
    assert "four pence" in before["answer"].replace("*", "")
    make, expected = CHANGES[change]
    await make(world, document)
    after = await world.ask(QUESTION, **options)
    assert not after["trace"]["cached"]
    assert (
        (expected in (after["answer"] or "").replace("*", ""))
        if expected
        else document not in {result["document_id"] for result in after["contexts"]}
    )


async def test_concurrent_queries_never_serve_stale_cached_answers(world: ApiWorld) -> None:
    over, n_cached = asyncio.Event(), 0

    async def reader() -> None:
        nonlocal n_cached
        while not over.is_set():
            n_cached += (await world.ask(QUESTION))["trace"]["cached"]

    await world.ingest_until_searchable(NOTE, external_id="toll")
    readers = [asyncio.create_task(reader()) for _ in range(4)]
    for price in ("five", "six", "seven", "eight", "nine"):
        await world.ingest_until_searchable(NOTE.replace("four", price), external_id="toll")
        assert f"{price} pence" in (await world.ask(QUESTION))["answer"].replace("*", "")
        await eventually(
            lambda before=n_cached: n_cached > before or any(one.done() for one in readers)
        )
    over.set()
    await asyncio.gather(*readers)


async def test_cached_run_supports_lineage_rerun_and_diff(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="toll")
    answer = await ask_until_cached(world)
    run = answer["run_id"]
    await wait_until_recorded(world, run)
    await world.ingest_until_searchable(NOTE.replace("four", "nine"), external_id="toll")
    assert (await fetch_lineage(world, run))["verified"]
    again = await rerun_query(world, run)
    assert again["same"] and again["response"] == answer
    compared = await diff_run(world, run)
    assert not compared["same"] and compared["answer_changed"]
    assert "four pence" in compared["then"]["answer"].replace("*", "") and "nine pence" in compared[
        "now"
    ]["answer"].replace("*", "")


async def test_cache_hits_are_counted_in_metrics(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="toll")
    await ask_until_cached(world)
    await world.ask(QUESTION, k=3)  # another request, the same embedding
    lines = (await world.http.get("/metrics")).text.splitlines()
    assert 'anabranch_cache_requests_total{cache="answers",outcome="hit"} 1.0' in lines
    assert any(
        line.startswith('anabranch_cache_requests_total{cache="question_embeddings",outcome="hit"}')
        for line in lines
    )
