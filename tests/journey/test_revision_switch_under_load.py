from __future__ import annotations

import asyncio
from typing import Any

from tests.support.api_world import ApiWorld
from tests.support.log_backends import long_on_postgres

READER_COUNT = 4
SWITCH_COUNT = 5
SECTION_COUNT = 12
FILLER = (
    "Each of the boats that wait below the sluice pays the toll, "
    "and the keeper writes it down with the hour and the level of the water. "
) * 8


def make_edition(edition: str) -> str:
    """Make a text of a dozen chunks, each of which names its edition."""
    return "\n\n".join(
        f"# Rule {number}\n\nThe lock toll of the {edition} edition, rule {number}. {FILLER}"
        for number in range(SECTION_COUNT)
    )


def find_editions(answer: dict[str, Any]) -> set[tuple[int, str]]:
    """Return the editions in an answer by revision number and by text."""
    return {
        (result["revision"], "first" if "first edition" in result["snippet"] else "second")
        for result in answer["results"]
    }


@long_on_postgres
async def test_every_search_sees_one_revision_during_switch(world: ApiWorld) -> None:
    await world.ingest_until_searchable(make_edition("first"), external_id="tolls")
    seen: list[dict[str, Any]] = []
    over = asyncio.Event()

    async def reader() -> None:
        while not over.is_set():
            response = await world.http.post(
                "/v1/search", json={"query": "lock toll edition rule", "k": 10}
            )
            assert response.status_code == 200, response.text
            seen.append(response.json())

    async def writer() -> None:
        for turn in range(SWITCH_COUNT):
            await world.ingest_until_searchable(
                make_edition(["second", "first"][turn % 2]), external_id="tolls"
            )
        over.set()

    await asyncio.gather(writer(), *(reader() for _ in range(READER_COUNT)))
    assert all(answer["results"] for answer in seen), "there is always one that answers"
    assert all(len(find_editions(answer)) == 1 for answer in seen)
    assert len({edition for answer in seen for edition in find_editions(answer)}) > 2, (
        "several revisions were seen"
    )
