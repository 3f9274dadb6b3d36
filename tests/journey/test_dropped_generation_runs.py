"""Runs of a dropped generation keep their lineage, rerun and diff."""

from __future__ import annotations

from typing import Any

from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.lineage import ask_and_record, diff_run, fetch_lineage, rerun_query

NOTE = (
    "# Allowances\n\nThe daily allowance in Lisbon is 74 euros. Travel is booked by the office.\n\n"
    + "\n\n".join(
        (
            f"Clause {number}: receipts of kind {number} are kept "
            f"for {number} years in the archive by the lake."
        )
        for number in range(2, 30)
    )
    + "\n"
)
OTHER_CHUNKING_SETTINGS = ["chunk.strategy=fixed_size", "chunk.child_tokens=64"]


async def request_json(world: ApiWorld, method: str, path: str, **body: Any) -> dict[str, Any]:
    response = await world.http.request(method, path, **({"json": body} if body else {}))
    assert response.status_code in (200, 202), response.text
    return dict(response.json())


async def build_generation(world: ApiWorld, **options: Any) -> str:
    name = str((await request_json(world, "POST", "/v1/generations", **options))["generation"])
    await eventually(
        lambda: world.fetch_json(f"/v1/generations/{name}"),
        lambda generation: generation["state"] in ("shadow", "live"),
    )
    return name


async def test_run_of_dropped_generation_keeps_lineage_and_rerun(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances", title="Allowances")
    answer = await ask_and_record(world)
    name = await build_generation(world, purpose="reindex", set=OTHER_CHUNKING_SETTINGS)
    await request_json(world, "POST", "/v1/calibrations", generation=name, questions=2)
    await request_json(world, "POST", f"/v1/generations/{name}/promote")
    assert (await fetch_lineage(world, answer["run_id"]))["verified"], "it stands by"
    await request_json(world, "DELETE", "/v1/generations/g1")
    walked = await fetch_lineage(world, answer["run_id"])
    assert walked["verified"], walked["broken"]
    hops = {hop["name"]: hop for hop in walked["citations"][0]["hops"]}
    assert (
        hops["chunk"]["place"].startswith("table chunk_history") and hops["transcribed"]["verified"]
    )
    assert (hops["chunked"]["verified"], hops["chunked"]["detail"]) == (
        None,
        "removed from the log by retention",
    ), "its topic went with the generation"
    assert (await rerun_query(world, answer["run_id"]))["response"] == answer
    compared = await diff_run(world, answer["run_id"])
    assert [reason for reason in compared["reasons"] if reason["cause"] == "generation"], compared[
        "reasons"
    ]
