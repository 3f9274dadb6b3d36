"""Documents that are taken in through models on a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.composition.api import prepare_api
from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import prepare_worker
from anabranch.settings import ExtractSettings, ModelSettings
from streams.observe import Silent
from tests.api_access import api_client
from tests.fakes.openai_server import FakeOpenAI
from tests.journey.conftest import running
from tests.journey.remote.library import (
    ALLOWANCE,
    CONTRACT,
    FOUND,
    HANDBOOK,
    LOG,
    settings_for,
)


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429, "retry_after": 0.05}, {"drop": True}, {"nan": True}])
async def test_a_stage_waits_for_its_embedding_server_buries_nothing_and_goes_on(
    fake: FakeOpenAI, database: str, tmp_path: Path, fault: dict[str, Any]
) -> None:
    fake.fail(on="embeddings", times=4 if "status" in fault else 2, **fault)
    async with running(settings_for(fake, tmp_path), database, Overrides()) as world:
        receipt = await world.ingest(HANDBOOK, external_id="handbook")
        await world.searchable(LOG, external_id="log")
        assert (await world.ended(receipt))["state"] == "searchable"
        assert (await world.http.get("/v1/dead-letters")).json()["items"] == []
        assert (await world.search("daily allowance in Lisbon"))[0]["external_id"] == "handbook"
    assert len(fake.asked("embeddings")) > 2


async def test_a_chat_model_that_is_set_later_answers_and_leaves_extraction_as_the_index_was_made(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    plain = settings_for(fake, tmp_path).model_copy(update={"chat": ModelSettings(), "extract": ExtractSettings()})
    async with running(plain, database, Overrides()) as world:
        await world.searchable(HANDBOOK, external_id="handbook")
    later = settings_for(fake, tmp_path).model_copy(update={"extract": ExtractSettings()})
    async with running(later, database, Overrides()) as world:
        await world.searchable(CONTRACT, external_id="contract")
        assert (await world.ask(ALLOWANCE))["trace"]["models"]["answer"] == "fake-chat"
    assert [body["response_format"]["json_schema"]["name"] for body in fake.asked("completions")] == ["answer"]


async def test_a_new_index_beside_a_chat_model_is_extracted_by_it(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    settings = settings_for(fake, tmp_path).model_copy(update={"extract": ExtractSettings()})
    async with running(settings, database, Overrides()) as world:
        fake.say(FOUND)
        await world.searchable(HANDBOOK, external_id="handbook")
        async with asyncio.timeout(20):
            while not (await world.http.get("/v1/entities")).json()["items"]:
                await asyncio.sleep(0.02)
    assert [body["model"] for body in fake.asked("completions")] == ["fake-chat"]
    assert world.worker.generation.config.extract.model == "fake-chat"


async def test_letters_that_no_column_can_hold_leave_an_answer_that_is_sent_and_kept(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    settings = settings_for(fake, tmp_path, "extract.engine=rules")
    async with running(settings, database, Overrides()) as world:
        await world.searchable(HANDBOOK, external_id="handbook")
        for letter in ("\x00", "\ud83d"):
            sentences = [{"text": f"In Lisbon the daily allowance is 74 euros{letter}.", "citations": [1]}]
            fake.say(json.dumps({"sufficient": True, "sentences": sentences, "assumptions": [letter], "limitations": [letter]}))
            answer = await world.ask(ALLOWANCE)
            assert answer["answer"].startswith("In Lisbon the daily allowance is 74 euros. [1]")
            async with asyncio.timeout(20):
                while not ((run := await world.http.get(f"/v1/runs/{answer['run_id']}")).is_success and run.json()["response"]):
                    await asyncio.sleep(0.02)


async def test_an_extraction_that_never_keeps_to_its_schema_costs_a_document_its_graph_only(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    fake.say(*["no"] * 2)
    async with running(settings_for(fake, tmp_path), database, Overrides()) as world:
        receipt = await world.searchable(HANDBOOK, external_id="handbook")
        async with asyncio.timeout(20):
            while not (letters := (await world.http.get("/v1/dead-letters")).json()["items"]):
                await asyncio.sleep(0.02)
        assert [(letter["stage"], letter["code"]) for letter in letters] == [("extract", "MODEL_OUTPUT")]
        assert (await world.ended(receipt))["state"] == "searchable"
        assert "74 euros" in (await world.ask(ALLOWANCE))["answer"]


async def test_an_embedding_server_of_another_dimension_than_the_settings_say_is_waited_for_and_named(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    """The model gives 64 numbers and refuses to give more; nothing is buried, since no document is at fault."""
    observer = Waiting()
    settings = settings_for(fake, tmp_path, "embed.dimension=100")
    async with prepare_worker(settings, database, observer=observer) as worker, prepare_api(settings, database) as services:
        working = asyncio.create_task(worker.run())
        async with api_client(services) as http:
            receipt = (await http.post("/v1/ingest", json={"text": LOG})).json()
            async with asyncio.timeout(20):
                await observer.retrying.wait()
            assert observer.reason == "ENGINE_WRONG_DIMENSION"
            assert (await http.get(f"/v1/ingest/status/{receipt['ingestion_job_id']}")).json()["state"] == "running"
            assert (await http.get("/v1/dead-letters")).json()["items"] == []
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


class Waiting(Silent):
    """Remembers the first try of a reaction that was repeated."""

    def __init__(self) -> None:
        self.retrying, self.reason = asyncio.Event(), ""

    def retried(self, stage: str, reason: str) -> None:
        if stage == "embed":
            self.reason = reason
            self.retrying.set()
