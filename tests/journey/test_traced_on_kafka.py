from __future__ import annotations

from anabranch.composition.overrides import Overrides
from tests.both_logs import on_kafka
from tests.journey.conftest import World
from tests.journey.test_lineage import LATER, NOTE, answered, lineage
from tests.journey.test_past_runs import rerun


@on_kafka
async def test_on_kafka_an_answer_is_traced_made_again_and_its_facts_are_listed(world: World, overrides: Overrides) -> None:
    receipt = await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    await world.searchable(LATER, external_id="allowances")
    found = await lineage(world, answer["run_id"])
    assert found["verified"], found["broken"]
    hops = {hop["name"]: hop for hop in found["citations"][0]["hops"]}
    assert all(hops[name]["verified"] for name in ("chunk", "chunked", "transcribed", "accepted", "received", "blob")), hops
    assert len({hops[name]["event"]["partition"] for name in ("chunked", "transcribed", "accepted")}) == 1
    assert (await rerun(world, answer["run_id"]))["response"] == answer
    page = (await world.http.get("/v1/events", params={"document": receipt["document_id"], "limit": 100})).json()
    assert {"document.accepted.v1", "document.transcribed.v1", "document.chunked.v1", "chunks.embedded.v1", "document.indexed.v1"} <= {
        item["type"] for item in page["items"]
    }
    rest = (await world.http.get("/v1/events", params={"after": page["next"]})).json()
    assert page["end"] and rest["items"] == []
