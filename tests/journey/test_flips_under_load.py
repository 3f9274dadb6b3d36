from __future__ import annotations

import asyncio
from typing import Any

from tests.both_logs import on_both_logs
from tests.journey.conftest import World

READERS = 8
TURNS = 8
PARTS = 12
FILLER = "Each of the boats that wait below the sluice pays the toll, and the keeper writes it down with the hour and the level of the water. " * 8


def told(edition: str) -> str:
    """Long enough for a dozen chunks, each of which says which edition it is of."""
    return "\n\n".join(f"# Rule {number}\n\nThe lock toll of the {edition} edition, rule {number}. {FILLER}" for number in range(PARTS))


def editions_of(answer: dict[str, Any]) -> set[tuple[int, str]]:
    """Which revisions an answer is made of, by their number and by their text."""
    return {(result["revision"], "first" if "first edition" in result["snippet"] else "second") for result in answer["results"]}


@on_both_logs
async def test_while_a_document_flips_every_answer_is_of_one_whole_revision(world: World) -> None:
    await world.searchable(told("first"), external_id="tolls")
    seen: list[dict[str, Any]] = []
    over = asyncio.Event()

    async def reader() -> None:
        while not over.is_set():
            response = await world.http.post("/v1/search", json={"query": "lock toll edition rule", "k": 10})
            assert response.status_code == 200, response.text
            seen.append(response.json())

    async def writer() -> None:
        for turn in range(TURNS):
            await world.searchable(told(["second", "first"][turn % 2]), external_id="tolls")
        over.set()

    await asyncio.gather(writer(), *(reader() for _ in range(READERS)))
    assert all(answer["results"] for answer in seen), "there is always one that answers"
    assert all(len(editions_of(answer)) == 1 for answer in seen)
    assert len({edition for answer in seen for edition in editions_of(answer)}) > 2, "several revisions were seen"
