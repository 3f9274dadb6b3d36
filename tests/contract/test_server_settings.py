"""Settings decide how the servers of models are called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import numpy as np
import pytest

from anabranch.config.engines import open_chat, open_embedder
from anabranch.config.index_config import build_index_config
from anabranch.config.loader import load_settings
from anabranch.config.overrides import watch_nothing
from anabranch.config.settings import Settings
from retrieval.ranking.query_context import ModelBudget
from schemas.errors import ConfigurationError, EngineUnavailable
from schemas.ports.metering import use_meter
from tests.fakes.openai_server import FakeOpenAI, fake_openai

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with fake_openai() as server:
        yield server


def make_settings(fake: FakeOpenAI, *sets: str) -> Settings:
    servers = [f"{section}.base_url={fake.url}" for section in ("chat", "embed")]
    models = [f"{section}.model=fake" for section in ("chat", "embed")]
    return load_settings(sets=[*servers, *models, "embed.dimension=8", *sets])


async def complete(settings: Settings, fake: FakeOpenAI, last_error: str = "http") -> int:
    """Let the planner fail twice; return the requests that were sent."""
    async with AsyncExitStack() as stack:
        planner = await open_chat(settings, stack, watch_nothing, "plan")
        assert planner is not None
        for message in ("http", last_error):
            with pytest.raises(EngineUnavailable, match=message):
                await planner.complete("s", "u", SCHEMA, name="plan")
    return len(fake.requests)


async def test_embedder_of_cohere_tells_questions_from_passages_and_reports_tokens() -> None:
    with fake_openai(matryoshka=False, api_key="secret") as fake:
        settings = make_settings(
            fake, "embed.api=cohere", "embed.api_key=secret", "embed.batch=500"
        )
        config = build_index_config(settings).embed
        meter = ModelBudget()
        async with AsyncExitStack() as stack:
            embedder = await open_embedder(settings, config, stack, watch_nothing)
            with use_meter(meter):
                passages = await embedder.embed(["a bearing costs", *("other words",) * 99])
                question = await embedder.embed_query("a bearing")
            fake.fail(on="embed", drop=True, times=9)
            with pytest.raises(EngineUnavailable, match="did not return 1 vectors"):
                await embedder.embed_query("again")
    assert config.engine == "cohere" and len(passages) == 100
    assert question.vector @ passages[0].vector.astype(np.float32) > 0.5
    bodies = fake.get_request_bodies("/embed")
    # The first one asks for vectors of 8 dimensions, which the model cannot shorten.
    assert bodies[0]["output_dimension"] == 8 and "output_dimension" not in bodies[-1]
    assert {len(body["texts"]) for body in bodies} == {96, 4, 1}
    assert {body["input_type"] for body in bodies if len(body["texts"]) > 1} == {"search_document"}
    assert bodies[-1]["input_type"] == "search_query"
    [usage] = meter.list_usage()
    assert (usage.input_tokens, usage.estimated) == (3 + 198 + 2, False)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (["chat.attempts=1"], 2),
        (["chat.attempts=1", "plan.attempts=2"], 4),
        (["chat.attempts=1", "chat.breaker_failures=1"], 1),
    ],
)
async def test_attempts_and_breaker_of_a_task_are_those_of_chat_or_its_own(
    fake: FakeOpenAI, sets: list[str], expected: int
) -> None:
    fake.fail(times=9, status=503, retry_after=0)
    assert await complete(make_settings(fake, *sets), fake) == expected


async def test_circuit_stays_open_for_the_setting(fake: FakeOpenAI) -> None:
    fake.fail(times=9, status=503, retry_after=0)
    sets = ["chat.attempts=1", "chat.breaker_failures=1", "chat.breaker_open_s=77"]
    message = "failed 1 times in a row; its circuit stays open for 77 s"
    assert await complete(make_settings(fake, *sets), fake, message) == 1


async def test_request_times_out_after_the_setting(fake: FakeOpenAI) -> None:
    fake.fail(times=9, hang=True)
    async with asyncio.timeout(60):
        sent = await complete(make_settings(fake, "chat.timeout_s=0.5", "chat.attempts=1"), fake)
    assert sent == 2


async def test_attempts_end_after_the_total_time_of_the_setting(fake: FakeOpenAI) -> None:
    fake.fail(times=9, status=503, retry_after=0.2)
    sets = ["chat.attempts=9", "chat.total_timeout_s=0.1"]
    # Of two requests; a second attempt begins after .2 s, if the first one took less than .1 s.
    assert 2 <= await complete(make_settings(fake, *sets), fake) <= 4


async def test_embeddings_are_sent_in_batches_of_the_setting(fake: FakeOpenAI) -> None:
    settings = make_settings(fake, "embed.batch=2", "embed.parallel=1")
    config = build_index_config(settings).embed
    async with AsyncExitStack() as stack:
        embedder = await open_embedder(settings, config, stack, watch_nothing)
        await embedder.embed(["one", "two", "three", "four", "five"])
    sizes = [len(body["input"]) for body in fake.get_request_bodies("embeddings")]
    assert sizes == [2, 2, 1]


def test_how_a_server_is_called_does_not_change_the_index(fake: FakeOpenAI) -> None:
    calls = [
        *("attempts=9", "timeout_s=7", "total_timeout_s=9"),
        *("breaker_failures=2", "breaker_open_s=3"),
    ]
    sections = ("chat", "embed", "extract", "ocr", "rerank", "plan", "route", "judge")
    sets = [f"{section}.{call}" for section in sections for call in calls]
    plain = load_settings(sets=[])
    changed = load_settings(sets=[*sets, "embed.batch=9", "embed.parallel=2"])
    assert build_index_config(changed) == build_index_config(plain)


@pytest.mark.parametrize(
    "setting", ["chat.attempts=0", "chat.timeout_s=0", "embed.batch=4096", "judge.attempts=11"]
)
def test_values_out_of_bounds_are_refused(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=setting.partition("=")[0]):
        load_settings(sets=[setting])
