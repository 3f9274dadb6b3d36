from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from streams.kafka.settings import KafkaSettings
from tests.journey.conftest import World
from tests.journey.test_lineage import LATER, NOTE, answered, lineage
from tests.journey.test_past_runs import rerun

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(tmp_path: Path, kafka_settings: KafkaSettings) -> Settings:
    kafka = [f"kafka.bootstrap_servers={kafka_settings.bootstrap_servers}", f"kafka.topic_prefix={kafka_settings.topic_prefix}", "kafka.partitions=3"]
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *kafka])


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
