from __future__ import annotations

from sql.index.partitions import drop_partitions
from sql.pool import close_pool, open_pool
from tests.support.api_world import ApiWorld
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


async def test_rerun_is_identical_after_document_change(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    await world.ingest_until_searchable(REVISED_NOTE, external_id="allowances")
    made = await rerun_query(world, answer["run_id"])
    assert made["same"] and made["missing"] == []
    assert made["response"] == answer


async def test_rerun_is_identical_after_document_delete(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    deleted = await world.http.delete(f"/v1/documents/{receipt['document_id']}")
    assert (await world.wait_until_final(deleted.json()))["state"] == "withdrawn"
    assert (await rerun_query(world, answer["run_id"]))["response"] == answer


async def test_rerun_and_lineage_survive_dropped_generation(world: ApiWorld, database: str) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    pool = await open_pool(database, size=2, name="drop")
    assert await drop_partitions(pool, "g1") > 0
    assert await pool.fetchval("select count(*) from child_chunks") == 0
    await close_pool(pool)
    assert (await rerun_query(world, answer["run_id"]))["response"] == answer
    walked = await fetch_lineage(world, answer["run_id"])
    assert walked["verified"], walked["broken"]
    assert [hop["name"] for hop in walked["citations"][0]["hops"] if hop["verified"]] == [
        "chunk",
        "chunked",
        "transcribed",
        "accepted",
        "received",
        "blob",
    ]


async def test_search_rerun_is_identical(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    found = (await world.http.post("/v1/search", json={"query": "allowance in Lisbon"})).json()
    await wait_until_recorded(world, found["run_id"])
    assert (await rerun_query(world, found["run_id"]))["response"] == found


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
