"""Embed, rerank and answer with an OpenAI-compatible server that only the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import NO_OVERRIDES
from anabranch.config.settings import Settings
from schemas.errors import GenerationMismatch
from tests.fakes.openai_server import NATIVE_DIMENSION, FakeOpenAI, fake_openai
from tests.support.api_world import ApiWorld, run_system

FERRY_TEXT = (
    "# Ferry\n\n"
    "The ferry to Sable Point leaves at nine. The ticket office closes at eight in the evening."
)


@pytest.fixture(scope="module")
def models() -> Iterator[FakeOpenAI]:
    with fake_openai(api_key="key") as fake:
        yield fake


@pytest.fixture
def settings(tmp_path: Path, models: FakeOpenAI) -> Settings:
    server = [
        f"{section}.{key}={value}"
        for section in ("chat", "embed", "rerank")
        for key, value in (("base_url", models.url), ("api_key", "key"))
    ]
    named = [
        "chat.model=writer",
        "embed.model=vectors",
        f"embed.dimension={NATIVE_DIMENSION}",
        "rerank.model=judge",
    ]
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *server, *named])


@pytest.fixture
async def world(settings: Settings, database: str) -> AsyncIterator[ApiWorld]:
    async with run_system(settings, database, NO_OVERRIDES) as found:
        yield found


async def test_model_server_embeds_reranks_and_answers(world: ApiWorld, models: FakeOpenAI) -> None:
    await world.ingest_until_searchable(FERRY_TEXT, "ferry.md", external_id="ferry")
    answer = await world.ask("When does the ticket office close?")
    assert not answer["refused"], answer
    assert "eight" in answer["answer"]
    assert answer["citations"][0]["quote"] in FERRY_TEXT
    assert (answer["trace"]["models"], answer["trace"]["reranker"]) == (
        {"embed": "vectors", "answer": "writer"},
        "judge",
    )
    assert answer["trace"]["model_calls"] == 3
    paths = {path.removeprefix("/v1") for path, _ in models.requests}
    assert {"/embeddings", "/rerank", "/chat/completions"} <= paths


async def test_failing_chat_server_falls_back_to_extractive_answer(
    world: ApiWorld, models: FakeOpenAI
) -> None:
    await world.ingest_until_searchable(FERRY_TEXT, "ferry.md")
    models.queue_answers(*["this is not the JSON that was asked for"] * 10)
    answer = await world.ask("When does the ticket office close?")
    models._queued_answers.clear()
    assert "eight in the evening" in answer["answer"]
    assert any("writer" in limitation for limitation in answer["limitations"])


async def test_index_rejects_different_embedding_model(
    world: ApiWorld, settings: Settings, database: str
) -> None:
    other = settings.model_copy(
        update={"embed": settings.embed.model_copy(update={"model": "other"})}
    )
    with pytest.raises(GenerationMismatch, match=r"embed\.model"):
        async with prepare_worker(other, database):
            raise AssertionError("it started")
