"""A question that is asked again and again, and the document that it is about."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.journey.conftest import PATIENCE_S, World
from tests.journey.test_lineage import lineage, recorded
from tests.journey.test_past_runs import diff, rerun

NOTE = "The toll of the lower lock is four pence for each boat."
QUESTION = "What is the toll of the lower lock?"


async def hot(world: World, **options: Any) -> dict[str, Any]:
    """Asked until it is answered from memory."""
    for _ in range(20):
        answer = await world.ask(QUESTION, **options)
        if answer["trace"]["cached"]:
            return answer
    raise AssertionError("it never came from memory")


async def edited(world: World, document: str) -> None:
    await world.searchable(NOTE.replace("four", "nine"), external_id="toll")


async def amended(world: World, document: str) -> None:
    response = await world.http.patch(f"/v1/documents/{document}", json={"tags": ["closed"]})
    assert (await world.ended(response.json()))["state"] == "searchable"


async def deleted(world: World, document: str) -> None:
    assert (await world.ended((await world.http.delete(f"/v1/documents/{document}")).json()))["state"] == "withdrawn"


async def erased(world: World, document: str) -> None:
    response = await world.http.post("/v1/erasures", json={"scope": "document", "name": document})
    assert response.status_code == 202, response.text
    async with asyncio.timeout(PATIENCE_S):
        while (await world.http.get(f"/v1/documents/{document}")).status_code != 404:
            await asyncio.sleep(0)


CHANGES = {"edited": (edited, "nine pence"), "amended": (amended, None), "deleted": (deleted, None), "erased": (erased, None)}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_first_question_after_a_change_is_answered_anew(world: World, change: str) -> None:
    document = (await world.searchable(NOTE, external_id="toll", tags=["open"]))["document_id"]
    await world.searchable("The upper lock has a keeper's house with a red roof.", external_id="roof", tags=["open"])
    options = {"filters": {"tags": ["open"]}} if change == "amended" else {}
    before = await hot(world, **options)
    assert "four pence" in before["answer"].replace("*", "")
    make, told = CHANGES[change]
    await make(world, document)
    after = await world.ask(QUESTION, **options)
    assert not after["trace"]["cached"]
    assert (told in (after["answer"] or "").replace("*", "")) if told else document not in {result["document_id"] for result in after["contexts"]}


async def test_while_many_ask_the_same_whoever_asks_after_a_revision_is_told_sees_it(world: World) -> None:
    over, remembered = asyncio.Event(), 0

    async def reader() -> None:
        nonlocal remembered
        while not over.is_set():
            remembered += (await world.ask(QUESTION))["trace"]["cached"]

    await world.searchable(NOTE, external_id="toll")
    readers = [asyncio.create_task(reader()) for _ in range(4)]
    for price in ("five", "six", "seven", "eight", "nine"):
        await world.searchable(NOTE.replace("four", price), external_id="toll")
        assert f"{price} pence" in (await world.ask(QUESTION))["answer"].replace("*", "")
        seen = remembered
        async with asyncio.timeout(PATIENCE_S):
            while remembered == seen and not any(one.done() for one in readers):
                await asyncio.sleep(0.01)
    over.set()
    await asyncio.gather(*readers)


async def test_a_run_that_was_answered_from_memory_is_traced_rerun_and_compared_as_any_other(world: World) -> None:
    await world.searchable(NOTE, external_id="toll")
    answer = await hot(world)
    run = answer["run_id"]
    await recorded(world, run)
    await world.searchable(NOTE.replace("four", "nine"), external_id="toll")
    assert (await lineage(world, run))["verified"]
    again = await rerun(world, run)
    assert again["same"] and again["response"] == answer
    compared = await diff(world, run)
    assert not compared["same"] and compared["answer_changed"]
    assert "four pence" in compared["then"]["answer"].replace("*", "") and "nine pence" in compared["now"]["answer"].replace("*", "")


async def test_caches_are_counted(world: World) -> None:
    await world.searchable(NOTE, external_id="toll")
    await hot(world)
    lines = (await world.http.get("/metrics")).text.splitlines()
    assert 'anabranch_cache_requests_total{cache="answers",outcome="hit"} 1.0' in lines
    assert any(line.startswith('anabranch_cache_requests_total{cache="question_embeddings",outcome="hit"}') for line in lines)
