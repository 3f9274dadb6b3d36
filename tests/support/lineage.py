"""Record a run, fetch its lineage, rerun it and compare."""

from __future__ import annotations

from typing import Any

from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually

QUESTION = "What is the daily allowance in Lisbon?"


NOTE = (
    "# Allowances\n\nThe daily allowance in Lisbon is 74 euros. Travel is booked by the office.\n"
)


REVISED_NOTE = (
    "# Allowances\n\nThere is no allowance any more. Everybody stays at home this year.\n"
)


async def wait_until_recorded(world: ApiWorld, run: str) -> None:
    """Wait until the run's row has its response, which arrives through the log."""
    await eventually(
        lambda: world.fetch_json(f"/v1/runs/{run}"),
        lambda record: record and record["response"],
        what=f"the response of run {run}",
    )


async def ask_and_record(world: ApiWorld) -> dict[str, Any]:
    answer = await world.ask(QUESTION)
    assert "74 euros" in (answer["answer"] or ""), answer
    await wait_until_recorded(world, answer["run_id"])
    return answer


async def fetch_lineage(world: ApiWorld, run: str, **options: Any) -> dict[str, Any]:
    response = await world.http.get(f"/v1/runs/{run}/lineage", params=options)
    assert response.status_code == 200, response.text
    return dict(response.json())


def find_source_entities(document: dict[str, Any]) -> set[str]:
    """Return the provenance entities from which nothing else is derived."""
    edges = [
        (one["prov:generatedEntity"], one["prov:usedEntity"])
        for one in document["wasDerivedFrom"].values()
    ]
    sources, derived = {used for _, used in edges}, {made for made, _ in edges}
    assert sources <= set(document["entity"]) and derived <= set(document["entity"])
    return {one for one in sources - derived if not one.startswith("event:")}


async def rerun_query(world: ApiWorld, run: str) -> dict[str, Any]:
    response = await world.http.post(f"/v1/runs/{run}/rerun")
    assert response.status_code == 200, response.text
    return dict(response.json())


async def diff_run(world: ApiWorld, run: str, **body: Any) -> dict[str, Any]:
    response = await world.http.post(f"/v1/runs/{run}/diff", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())
