"""Ingest documents with every model on a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import ExtractSettings, ModelSettings
from streams.stage import Instrumentation
from tests.fakes.openai_server import FakeOpenAI
from tests.journey.remote.corpus import (
    ALLOWANCE_QUESTION,
    CONTRACT,
    EXTRACTION,
    HANDBOOK,
    LOCK_NOTE,
    make_settings,
    wait_for_entities,
)
from tests.support.api_client import api_client
from tests.support.api_world import run_system
from tests.support.eventually import eventually
from tests.support.lineage import wait_until_recorded


@pytest.mark.parametrize("fault", [{"status": 503}, {"nan": True}])
async def test_embedding_outage_is_retried_without_dead_letters(
    fake: FakeOpenAI, database: str, tmp_path: Path, fault: dict[str, Any]
) -> None:
    fake.fail(on="embeddings", times=4 if "status" in fault else 2, **fault)
    async with run_system(make_settings(fake, tmp_path), database, Overrides()) as world:
        receipt = await world.ingest(HANDBOOK, external_id="handbook")
        await world.ingest_until_searchable(LOCK_NOTE, external_id="log")
        assert (await world.wait_until_final(receipt))["state"] == "searchable"
        assert (await world.http.get("/v1/dead-letters")).json()["items"] == []
        assert (await world.search("daily allowance in Lisbon"))[0]["external_id"] == "handbook"
    assert len(fake.get_request_bodies("embeddings")) > 2


async def test_chat_model_added_later_does_not_change_extraction(
    fake: FakeOpenAI, database: str, tmp_path: Path
) -> None:
    plain = make_settings(fake, tmp_path).model_copy(
        update={"chat": ModelSettings(), "extract": ExtractSettings()}
    )
    async with run_system(plain, database, Overrides()) as world:
        await world.ingest_until_searchable(HANDBOOK, external_id="handbook")
    later = make_settings(fake, tmp_path).model_copy(update={"extract": ExtractSettings()})
    async with run_system(later, database, Overrides()) as world:
        await world.ingest_until_searchable(CONTRACT, external_id="contract")
        assert (await world.ask(ALLOWANCE_QUESTION))["trace"]["models"]["answer"] == "fake-chat"
    assert [
        body["response_format"]["json_schema"]["name"]
        for body in fake.get_request_bodies("completions")
    ] == ["answer"]


async def test_new_index_uses_chat_model_for_extraction(
    fake: FakeOpenAI, database: str, tmp_path: Path
) -> None:
    settings = make_settings(fake, tmp_path).model_copy(update={"extract": ExtractSettings()})
    async with run_system(settings, database, Overrides()) as world:
        fake.queue_answers(EXTRACTION)
        await world.ingest_until_searchable(HANDBOOK, external_id="handbook")
        await wait_for_entities(world)
    assert [body["model"] for body in fake.get_request_bodies("completions")] == ["fake-chat"]
    assert world.worker.generation.config.extract.model == "fake-chat"


async def test_unstorable_characters_are_removed_from_stored_answer(
    fake: FakeOpenAI, database: str, tmp_path: Path
) -> None:
    settings = make_settings(fake, tmp_path, "extract.engine=rules")
    async with run_system(settings, database, Overrides()) as world:
        await world.ingest_until_searchable(HANDBOOK, external_id="handbook")
        for letter in ("\x00", "\ud83d"):
            sentences = [
                {"text": f"In Lisbon the daily allowance is 74 euros{letter}.", "citations": [1]}
            ]
            fake.queue_answers(
                json.dumps(
                    {
                        "sufficient": True,
                        "sentences": sentences,
                        "assumptions": [letter],
                        "limitations": [letter],
                        "search": "",
                    }
                )
            )
            answer = await world.ask(ALLOWANCE_QUESTION)
            assert answer["answer"].startswith("In Lisbon the daily allowance is 74 euros. [1]")
            await wait_until_recorded(world, answer["run_id"])


async def test_failed_extraction_leaves_document_searchable(
    fake: FakeOpenAI, database: str, tmp_path: Path
) -> None:
    fake.queue_answers(*["no"] * 2)
    async with run_system(make_settings(fake, tmp_path), database, Overrides()) as world:
        receipt = await world.ingest_until_searchable(HANDBOOK, external_id="handbook")
        page = await eventually(
            lambda: world.fetch_json("/v1/dead-letters"), lambda page: page["items"]
        )
        assert [(letter["stage"], letter["code"]) for letter in page["items"]] == [
            ("extract", "MODEL_OUTPUT")
        ]
        assert (await world.wait_until_final(receipt))["state"] == "searchable"
        assert "74 euros" in (await world.ask(ALLOWANCE_QUESTION))["answer"]


async def test_wrong_embedding_dimension_is_retried_and_reported(
    fake: FakeOpenAI, database: str, tmp_path: Path
) -> None:
    """The model returns 64 dimensions; no document is at fault, so nothing is dead-lettered."""
    observer = RetryRecorder()
    settings = make_settings(fake, tmp_path, "embed.dimension=100")
    async with (
        prepare_worker(settings, database, instrumentation=observer) as worker,
        prepare_api(settings, database) as services,
    ):
        working = asyncio.create_task(worker.run())
        async with api_client(services) as http:
            receipt = (await http.post("/v1/ingest", json={"text": LOCK_NOTE})).json()
            async with asyncio.timeout(90):
                await observer.retrying.wait()
            assert observer.reason == "ENGINE_WRONG_DIMENSION"
            assert (await http.get(f"/v1/ingest/status/{receipt['ingestion_job_id']}")).json()[
                "state"
            ] == "running"
            assert (await http.get("/v1/dead-letters")).json()["items"] == []
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


class RetryRecorder(Instrumentation):
    """Record the first retry of a reaction."""

    def __init__(self) -> None:
        self.retrying, self.reason = asyncio.Event(), ""

    def count_retry(self, stage: str, reason: str) -> None:
        if stage == "embed":
            self.reason = reason
            self.retrying.set()
