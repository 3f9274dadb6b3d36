"""Trace, verify, export and rerun answers from tables, from scans and by a chat model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prov.model import ProvDocument

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from sql.index.partitions import drop_partitions
from tests.fakes.null_embedder import NullEmbedder
from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.support.api_world import ApiWorld, run_system
from tests.support.lineage import (
    diff_run,
    fetch_lineage,
    find_source_entities,
    rerun_query,
    wait_until_recorded,
)

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).parents[2] / "samples" / "corpus"
CSV_FILE, DOCX_FILE, SCAN_FILE = (
    "crossings-2025.csv",
    "ferry-service-agreement.docx",
    "notice-to-mariners.png",
)
QUESTIONS = {
    CSV_FILE: "How many passengers crossed in 2025-07, the month of the Reed Island regatta?",
    DOCX_FILE: "How much is the single fare for a bicycle or a car?",
    SCAN_FILE: "How far was buoy 14 moved?",
}
UPSTREAM_HOPS = ["chunked", "transcribed", "accepted", "received", "blob"]


async def ask_and_record(world: ApiWorld, name: str) -> dict[str, Any]:
    answer = await world.ask(QUESTIONS[name])
    assert answer["citations"][0]["external_id"] == name, answer
    await wait_until_recorded(world, answer["run_id"])
    return answer


async def ask_with_failing_model(world: ApiWorld, name: str, models: FakeOpenAI) -> dict[str, Any]:
    """Ask with a model that returns nothing usable."""
    models.queue_answers(*["no JSON at all"] * 10)
    answer = await ask_and_record(world, name)
    models._queued_answers.clear()
    return answer


async def assert_lineage_and_rerun(world: ApiWorld, answer: dict[str, Any], *first: str) -> None:
    found = await fetch_lineage(world, answer["run_id"])
    assert found["verified"] and len(found["citations"]) == len(answer["citations"]), found[
        "broken"
    ]
    assert [hop["name"] for hop in found["citations"][0]["hops"] if hop["verified"]] == [
        *first,
        *UPSTREAM_HOPS,
    ]
    exported = (
        await world.http.get(f"/v1/runs/{answer['run_id']}/lineage", params={"format": "prov"})
    ).text
    assert ProvDocument.deserialize(content=exported, format="json").get_records()
    assert find_source_entities(json.loads(exported)) == {
        f"sha256:{one['content_sha256']}" for one in found["citations"]
    }
    assert (await rerun_query(world, answer["run_id"]))["response"] == answer


async def test_table_scan_and_model_answers_have_lineage_and_rerun(
    tmp_path: Path, database: str
) -> None:
    with fake_openai() as models:
        chat = [f"chat.base_url={models.url}", "chat.model=writer"]
        settings = load_settings(
            data_dir=tmp_path / "data", sets=["logging.level=error", "cache.answers=0", *chat]
        )
        async with run_system(
            settings, database, Overrides(embedder=NullEmbedder(64, 16))
        ) as world:
            for name in QUESTIONS:
                await world.ingest_until_searchable(
                    (CORPUS / name).read_bytes(), name, external_id=name
                )
            answers = [await ask_with_failing_model(world, name, models) for name in QUESTIONS]
            assert answers[0]["citations"][0]["header"][:2] == ["month", "passengers"]
            assert answers[2]["citations"][0]["spans"][0]["box"], (
                "a line of a scan has its place on the page"
            )
            written = [await ask_and_record(world, name) for name in (DOCX_FILE, SCAN_FILE)]
            assert all(answer["trace"]["models"]["answer"] == "writer" for answer in written)
            for answer in [*answers, *written]:
                await assert_lineage_and_rerun(world, answer, "chunk", "embedded")
                assert (await diff_run(world, answer["run_id"]))["same"] == (answer in written), (
                    "an answer that a model writes now is another"
                )
            pool = world.worker.storage.pool
            otherwise = "update child_chunks set text = replace(replace(text, $1, $2), $3, $4)"
            await pool.execute(otherwise, "58900", "98900", "free", "gratis")
            for answer in (answers[0], answers[1], written[0]):
                broken = (await fetch_lineage(world, answer["run_id"]))["broken"]
                assert any("child_chunks" in fault for fault in broken), broken
            await pool.execute(
                "update child_chunks set spans = jsonb_set(spans, '{0,box,0}', '0.5') "
                "where spans #> '{0,box}' <> 'null'"
            )
            moved = await ask_with_failing_model(world, SCAN_FILE, models)
            assert any(
                "was recorded elsewhere" in fault
                for fault in (await fetch_lineage(world, moved["run_id"]))["broken"]
            )
            await pool.execute(otherwise, "98900", "58900", "gratis", "free")
            await drop_partitions(pool, "g1")
            for answer in [*answers, *written]:
                await assert_lineage_and_rerun(world, answer, "chunk")
