from __future__ import annotations

import json

from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.lineage import NOTE, QUESTION, rerun_query


async def test_run_is_answered_recorded_and_rerun(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    started = await world.http.post("/v1/runs", json={"query": QUESTION})
    assert started.status_code == 202, started.text
    run_id = started.json()["run_id"]
    stream = (await world.http.get(f"/v1/runs/{run_id}/stream")).text
    *steps, last = [block.splitlines() for block in stream.strip().split("\n\n")]
    assert last[0] == "event: answer" and {step[0] for step in steps} == {"event: step"}
    answer = json.loads(last[1].removeprefix("data: "))
    assert answer["run_id"] == run_id and not answer["refused"]

    async def fetch_artifacts() -> dict[str, object]:
        response = await world.http.get(f"/v1/runs/{run_id}/artifacts")
        return dict(response.json()) if response.status_code == 200 else {}

    artifacts = await eventually(fetch_artifacts, lambda found: found.get("state") == "completed")
    assert artifacts["answer"] == answer["answer"] and artifacts["trace"] == answer["trace"]
    assert artifacts["candidates"] and artifacts["numbers"] and artifacts["contexts"]
    # The recorded numbers are all that the answer was made from.
    rerun = await rerun_query(world, run_id)
    assert rerun["same"] and rerun["response"] == answer
    recorded = (await world.http.get(f"/v1/runs/{run_id}/status")).json()
    ended = [step["step"] for step in recorded["steps"] if step["ms"] is not None]
    assert ended[0] == "plan" and {"channels", "fuse", "answer", "judge"} <= set(ended)
    [listed] = (await world.http.get("/v1/runs")).json()["items"]
    assert (listed["run_id"], listed["state"], listed["query"]) == (run_id, "completed", QUESTION)
