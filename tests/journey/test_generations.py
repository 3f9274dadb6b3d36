"""Two generations beside each other, from outside: asked by name, switched under load, rolled back."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.decisions import Decisions
from sql.switching import roll_back, switch
from streams.codec import Codec
from tests.generations import copied
from tests.journey.conftest import World

TEXTS = {
    "heron": "# Herons\n\nThe heron stands still in shallow water and waits for fish.",
    "stork": "# Storks\n\nThe stork builds a large nest of sticks on chimneys.",
    "crane": "# Cranes\n\nThe crane dances in spring and flies south in autumn.",
}
PER_SECOND = 50


async def filled(world: World) -> None:
    for name, text in TEXTS.items():
        await world.searchable(text, external_id=name)


def decisions(world: World) -> Decisions:
    return Decisions(world.worker.storage.log, Codec())


async def test_a_question_names_the_generation_that_it_was_asked_of(world: World) -> None:
    await filled(world)
    await copied(world.worker.storage.pool, "g1", "g2")
    await world.worker.storage.pool.execute(
        "delete from visible where generation = 'g2' and document_id in (select id from documents where external_id = 'heron')"
    )
    for named, expected, found in ((None, "g1", ["heron"]), ("g1", "g1", ["heron"]), ("g2", "g2", [])):
        response = (await world.http.post("/v1/search", json={"query": "heron", "generation": named, "channels": ["lexical"]})).json()
        assert (response["generation"], response["trace"]["generation"]) == (expected, expected)
        assert [result["external_id"] for result in response["results"]] == found
    assert (await world.ask("heron?", generation="g2"))["generation"] == "g2"
    unknown = await world.http.post("/v1/query", json={"query": "heron", "generation": "g9"})
    assert unknown.status_code == 404 and unknown.json()["code"] == "NOT_FOUND"


async def test_under_fifty_questions_a_second_a_switch_fails_none_and_each_answer_names_one_generation(world: World) -> None:
    await filled(world)
    pool = world.worker.storage.pool
    await copied(pool, "g1", "g2")
    stop = asyncio.Event()
    asking = asyncio.create_task(questions(world, stop))
    order = []
    for _ in range(3):
        await asyncio.sleep(0.3)
        order.append((await switch(pool, "g2", decisions(world).promoted)).generation)
        await asyncio.sleep(0.3)
        order.append((await roll_back(pool, decisions(world).promoted)).generation)
    stop.set()
    answers = await asking
    assert order == ["g2", "g1"] * 3
    assert {status for status, _ in answers} == {200}
    named = [body["generation"] for _, body in answers]
    assert set(named) == {"g1", "g2"}
    assert all(body["trace"]["generation"] == body["generation"] and body["results"] for _, body in answers)
    assert len(answers) >= PER_SECOND


async def questions(world: World, stop: asyncio.Event) -> list[tuple[int, dict[str, Any]]]:
    """Begun at their rate, whether or not those before have been answered."""
    under_way = []

    async def ask(word: str) -> tuple[int, dict[str, Any]]:
        response = await world.http.post("/v1/search", json={"query": word, "channels": ["lexical"]})
        return response.status_code, response.json()

    while not stop.is_set():
        under_way.append(asyncio.create_task(ask(list(TEXTS)[len(under_way) % len(TEXTS)])))
        await asyncio.sleep(1 / PER_SECOND)
    return await asyncio.gather(*under_way)
