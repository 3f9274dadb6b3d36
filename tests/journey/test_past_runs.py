from __future__ import annotations

from typing import Any

from sql.partitions import drop_partitions
from sql.pool import close_pool, open_pool
from tests.journey.conftest import World
from tests.journey.test_lineage import LATER, NOTE, QUESTION, answered, lineage, recorded


async def rerun(world: World, run: str) -> dict[str, Any]:
    response = await world.http.post(f"/v1/runs/{run}/rerun")
    assert response.status_code == 200, response.text
    return dict(response.json())


async def diff(world: World, run: str, **body: Any) -> dict[str, Any]:
    response = await world.http.post(f"/v1/runs/{run}/diff", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_an_answer_is_made_again_byte_for_byte_after_its_document_has_changed(world: World) -> None:
    await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    await world.searchable(LATER, external_id="allowances")
    made = await rerun(world, answer["run_id"])
    assert made["same"] and made["missing"] == []
    assert made["response"] == answer


async def test_an_answer_is_made_again_after_its_document_was_deleted(world: World) -> None:
    receipt = await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    deleted = await world.http.delete(f"/v1/documents/{receipt['document_id']}")
    assert (await world.ended(deleted.json()))["state"] == "withdrawn"
    assert (await rerun(world, answer["run_id"]))["response"] == answer


async def test_an_answer_is_made_again_and_traced_after_its_generation_was_dropped(world: World, database: str) -> None:
    await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    pool = await open_pool(database, size=2, name="drop")
    assert await drop_partitions(pool, "g1") > 0
    assert await pool.fetchval("select count(*) from child_chunks") == 0
    await close_pool(pool)
    assert (await rerun(world, answer["run_id"]))["response"] == answer
    walked = await lineage(world, answer["run_id"])
    assert walked["verified"], walked["broken"]
    assert [hop["name"] for hop in walked["citations"][0]["hops"] if hop["verified"]] == ["chunk", "chunked", "transcribed", "accepted", "received", "blob"]


async def test_a_search_is_made_again(world: World) -> None:
    await world.searchable(NOTE, external_id="allowances")
    found = (await world.http.post("/v1/search", json={"query": "allowance in Lisbon"})).json()
    await recorded(world, found["run_id"])
    assert (await rerun(world, found["run_id"]))["response"] == found


async def test_another_answer_now_is_explained_by_the_new_revision(world: World) -> None:
    await world.searchable(NOTE, external_id="allowances", title="Allowances")
    answer = await answered(world)
    unchanged = await diff(world, answer["run_id"])
    assert unchanged["same"] and unchanged["reasons"] == []
    await world.searchable(LATER, external_id="allowances", title="Allowances")
    changed = await diff(world, answer["run_id"])
    assert not changed["same"] and changed["answer_changed"] and changed["then"]["answer"] == answer["answer"]
    assert {"cause": "document", "detail": "Allowances went from revision 1 to 2"} in changed["reasons"]
    await recorded(world, changed["now"]["run_id"])
    both = await diff(world, answer["run_id"], other=changed["now"]["run_id"])
    assert (both["reasons"], both["gone"]) == (changed["reasons"], changed["gone"])


async def test_a_run_that_is_not_there_is_a_404(world: World) -> None:
    for action in ("rerun", "diff"):
        response = await world.http.post(f"/v1/runs/00000000-0000-0000-0000-000000000001/{action}", json={})
        assert response.status_code == 404 and response.json()["code"] == "NOT_FOUND"


async def test_rerun_hides_a_passage_that_its_asker_may_no_longer_read(world: World) -> None:
    receipt = await world.searchable(NOTE, external_id="allowances")
    key = (await world.http.post("/v1/keys", json={"name": "ben", "user": "ben"})).json()["key"]
    ben = {"Authorization": f"Bearer {key}"}
    answer = (await world.http.post("/v1/query", json={"query": QUESTION}, headers=ben)).json()
    assert "74 euros" in answer["answer"]
    await recorded(world, answer["run_id"])
    path = f"/v1/runs/{answer['run_id']}/rerun"
    assert (await world.http.post(path, headers=ben)).json()["response"] == answer
    amended = await world.http.patch(f"/v1/documents/{receipt['document_id']}", json={"readers": ["user:ana"]})
    assert amended.status_code == 202, amended.text
    await world.ended(amended.json())
    refused = await world.http.post(path, headers=ben)
    assert (refused.status_code, refused.json()["code"]) == (404, "PASSAGE_GONE")
    assert "74 euros" not in refused.text and "llowance" not in refused.text
    assert (await rerun(world, answer["run_id"]))["response"] == answer
