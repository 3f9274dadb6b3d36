"""Answers of a generation that is gone: what was cut otherwise since is no fault of theirs."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.journey.conftest import PATIENCE_S, World
from tests.journey.test_lineage import answered, lineage
from tests.journey.test_past_runs import diff, rerun

NOTE = (
    "# Allowances\n\nThe daily allowance in Lisbon is 74 euros. Travel is booked by the office.\n\n"
    + "\n\n".join(f"Clause {number}: receipts of kind {number} are kept for {number} years in the archive by the lake." for number in range(2, 30))
    + "\n"
)
OTHER_CHUNKS = ["chunk.strategy=fixed_size", "chunk.child_tokens=64"]


async def call(world: World, method: str, path: str, **body: Any) -> dict[str, Any]:
    response = await world.http.request(method, path, **({"json": body} if body else {}))
    assert response.status_code in (200, 202), response.text
    return dict(response.json())


async def built(world: World, **how: Any) -> str:
    name = str((await call(world, "POST", "/v1/generations", **how))["generation"])
    async with asyncio.timeout(PATIENCE_S):
        while (await call(world, "GET", f"/v1/generations/{name}"))["state"] not in ("shadow", "live"):
            await asyncio.sleep(0.1)
    return name


async def test_an_answer_is_traced_and_made_again_after_its_index_was_cut_otherwise_promoted_and_dropped(world: World) -> None:
    await world.searchable(NOTE, external_id="allowances", title="Allowances")
    answer = await answered(world)
    name = await built(world, purpose="reindex", set=OTHER_CHUNKS)
    await call(world, "POST", f"/v1/generations/{name}/promote")
    assert (await lineage(world, answer["run_id"]))["verified"], "it stands by"
    await call(world, "DELETE", "/v1/generations/g1")
    walked = await lineage(world, answer["run_id"])
    assert walked["verified"], walked["broken"]
    hops = {hop["name"]: hop for hop in walked["citations"][0]["hops"]}
    assert hops["chunk"]["place"].startswith("table chunk_history") and hops["transcribed"]["verified"]
    assert (hops["chunked"]["verified"], hops["chunked"]["detail"]) == (None, "the record is no longer in the log"), "its topic went with the generation"
    assert (await rerun(world, answer["run_id"]))["response"] == answer
    compared = await diff(world, answer["run_id"])
    assert [reason for reason in compared["reasons"] if reason["cause"] == "generation"], compared["reasons"]
