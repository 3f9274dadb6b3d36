from __future__ import annotations

from anabranch.config.overrides import Overrides
from tests.support.api_world import ApiWorld
from tests.support.lineage import NOTE, REVISED_NOTE, ask_and_record, fetch_lineage, rerun_query
from tests.support.log_backends import on_kafka


@on_kafka
async def test_kafka_answer_has_lineage_rerun_and_events(
    world: ApiWorld, overrides: Overrides
) -> None:
    receipt = await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    await world.ingest_until_searchable(REVISED_NOTE, external_id="allowances")
    found = await fetch_lineage(world, answer["run_id"])
    assert found["verified"], found["broken"]
    hops = {hop["name"]: hop for hop in found["citations"][0]["hops"]}
    assert all(
        hops[name]["verified"]
        for name in ("chunk", "chunked", "transcribed", "accepted", "received", "blob")
    ), hops
    assert (
        len({hops[name]["event"]["partition"] for name in ("chunked", "transcribed", "accepted")})
        == 1
    )
    assert (await rerun_query(world, answer["run_id"]))["response"] == answer
    page = (
        await world.http.get(
            "/v1/events", params={"document": receipt["document_id"], "limit": 100}
        )
    ).json()
    assert {
        "document.accepted.v1",
        "document.transcribed.v1",
        "document.chunked.v1",
        "chunks.embedded.v1",
        "document.indexed.v1",
    } <= {item["type"] for item in page["items"]}
    rest = (await world.http.get("/v1/events", params={"after": page["next"]})).json()
    assert page["end"] and rest["items"] == []
