"""Every request to a model server is metered: counted, charged, and stopped before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from engines.chat.openai import OpenAIChat
from engines.embed.openai import OpenAIEmbedder
from engines.rerank.http import HttpReranker
from engines.server_settings import ServerRetryPolicy, ServerSettings
from retrieval.ranking.query_context import ModelBudget
from schemas.budgets import BudgetProfile, ModelPrice, ModelUsage, PriceTable
from schemas.errors import BudgetExceeded, EngineUnavailable, PermanentError
from schemas.ids import content_id
from schemas.ports.engines import ChatOptions, RerankPassage
from schemas.ports.metering import use_meter
from tests.fakes.openai_server import FakeOpenAI, fake_openai

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
PRICES = PriceTable(
    models={"fake": ModelPrice(input_per_million=1e6, output_per_million=1e6, per_call=100)}
)
TEXTS = ["The bearing costs 18,740 euros.", "Cats sleep on roofs.", "東京の天気は晴れです。"]


@dataclass
class Engines:
    fake: FakeOpenAI
    chat: OpenAIChat
    embedder: OpenAIEmbedder
    reranker: HttpReranker


@pytest.fixture(params=["openai", "vllm"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeOpenAI]:
    with fake_openai(kind=request.param) as server:
        yield server


@pytest.fixture
async def engines(fake: FakeOpenAI) -> AsyncIterator[Engines]:
    settings = ServerSettings(base_url=fake.url, model="fake", kind=fake.kind)
    policy = ServerRetryPolicy(first_wait_s=0, jitter_s=0)
    async with AsyncExitStack() as stack:
        found = Engines(
            fake,
            OpenAIChat(settings, retry_policy=policy, max_tokens=64),
            OpenAIEmbedder(settings, dimension=8, batch_size=2, retry_policy=policy),
            HttpReranker(settings, batch=2, parallel=1, retry_policy=policy),
        )
        for engine in (found.chat, found.embedder, found.reranker):
            stack.push_async_callback(engine.close)
        yield found


async def complete(engines: Engines, **options: Any) -> None:
    await engines.chat.complete("Answer.", TEXTS[0], SCHEMA, name="answer", **options)


async def rerank(engines: Engines) -> None:
    passages = [RerankPassage(content_id("passage", text), text) for text in TEXTS]
    await engines.reranker.rerank("What does the bearing cost?", None, passages)


def make_budget(**caps: Any) -> ModelBudget:
    return ModelBudget(BudgetProfile(**{"calls": 9, **caps}), PRICES)


def get_usage(budget: ModelBudget) -> ModelUsage:
    (usage,) = budget.list_usage()
    return usage


def count_words(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)


async def test_calls_of_all_kinds_are_counted_with_reported_tokens(engines: Engines) -> None:
    budget = make_budget()
    with use_meter(budget):
        await complete(engines)
        await engines.embedder.embed(TEXTS)
        await engines.embedder.embed_query(TEXTS[0])
        await rerank(engines)
    usage = {item.task: item for item in budget.list_usage()}
    assert sum(item.calls for item in usage.values()) == len(engines.fake.requests) == 6
    assert (usage["answer"].calls, usage["embed"].calls, usage["rerank"].calls) == (1, 3, 2)
    assert usage["embed"].input_tokens == count_words(*TEXTS, TEXTS[0])
    assert usage["answer"].output_tokens > 0 and not usage["answer"].estimated
    # Cohere's and Jina's interface reports no tokens, so the bounds count.
    assert usage["rerank"].estimated == (engines.fake.kind == "openai")
    if engines.fake.kind == "vllm":
        assert usage["rerank"].input_tokens == 10
    total = sum(item.input_tokens + item.output_tokens for item in usage.values())
    assert budget.compute_cost() == total + 6 * 100


async def test_repaired_and_streamed_replies_are_counted(engines: Engines) -> None:
    budget = make_budget()
    engines.fake.queue_answers("no JSON")
    with use_meter(budget):
        await complete(engines)
    repaired = get_usage(budget)
    assert repaired.calls == len(engines.fake.requests) == 2
    with use_meter(budget):
        await complete(engines, on_delta=lambda draft, delta: None)
    streamed = get_usage(budget)
    assert streamed.calls == 3 and streamed.input_tokens > repaired.input_tokens
    assert not streamed.estimated


async def test_refused_attempts_are_free_and_lost_replies_cost_their_bounds(
    engines: Engines,
) -> None:
    budget = make_budget()
    engines.fake.fail(status=429, retry_after=0)
    engines.fake.fail(status=500)
    with use_meter(budget):
        await complete(engines)
    usage = get_usage(budget)
    assert (usage.calls, usage.failed, usage.estimated) == (1, 2, False)
    engines.fake.fail(malformed=True)
    with use_meter(budget):
        await complete(engines)
    lost = get_usage(budget)
    assert (lost.calls, lost.failed, lost.estimated) == (3, 2, True)
    engines.fake.fail(hang=True)
    with use_meter(budget), pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await complete(engines)
    hung = get_usage(budget)
    assert hung.calls == 4 and hung.output_tokens >= lost.output_tokens + 64


async def test_unreachable_server_costs_nothing() -> None:
    settings = ServerSettings(base_url="http://127.0.0.1:1/v1", model="fake")
    chat = OpenAIChat(settings, retry_policy=ServerRetryPolicy(attempts=2, first_wait_s=0))
    budget = make_budget()
    with use_meter(budget), pytest.raises(EngineUnavailable):
        await chat.complete("Answer.", "x", SCHEMA, name="answer")
    await chat.close()
    usage = get_usage(budget)
    assert (usage.calls, usage.failed, usage.cost) == (0, 2, 0)


@pytest.mark.parametrize("caps", [{"calls": 1}, {"tokens": 500}, {"cost": 650.0}])
async def test_no_request_is_sent_beyond_a_cap(engines: Engines, caps: dict[str, Any]) -> None:
    budget = make_budget(**caps)
    with use_meter(budget):
        await complete(engines)
        # The repair of a reply, the retry of a request and the next question are all stopped.
        for _ in range(3):
            with pytest.raises(BudgetExceeded):
                for _ in range(9):
                    await complete(engines)
    usage = get_usage(budget)
    assert usage.calls == len(engines.fake.requests)
    assert usage.calls <= caps.get("calls", 9)
    assert usage.input_tokens + usage.output_tokens <= caps.get("tokens", 10_000)
    assert (usage.cost or 0) <= caps.get("cost", 1e9)
    assert {item.cap for item in budget.stopped} == set(caps)


async def test_repair_of_a_reply_is_stopped_by_the_cap(engines: Engines) -> None:
    budget = make_budget(calls=1)
    engines.fake.queue_answers("no JSON")
    with use_meter(budget), pytest.raises(BudgetExceeded):
        await complete(engines)
    assert len(engines.fake.requests) == 1


async def test_batches_in_flight_do_not_exceed_a_cap_together(fake: FakeOpenAI) -> None:
    settings = ServerSettings(base_url=fake.url, model="fake", kind=fake.kind)
    reranker = HttpReranker(settings, batch=1, parallel=3)
    budget = make_budget(search_calls=2)
    passages = [RerankPassage(content_id("passage", text), text) for text in TEXTS]
    with use_meter(budget), pytest.raises(BudgetExceeded):
        await reranker.rerank("What does the bearing cost?", None, passages)
    await reranker.close()
    assert len(fake.requests) <= 2 and fake.n_pending_faults == 0


async def test_stopped_calls_leave_the_circuit_closed(engines: Engines) -> None:
    with use_meter(make_budget(calls=0)):
        for _ in range(9):
            with pytest.raises(BudgetExceeded):
                await complete(engines)
    assert engines.fake.requests == []
    await complete(engines)


async def test_price_is_that_of_the_requested_model(engines: Engines) -> None:
    budget = make_budget(cost=10_000)
    with use_meter(budget), pytest.raises(BudgetExceeded, match="small has no price"):
        await complete(engines, options=ChatOptions(model="small"))
    assert engines.fake.requests == []


async def test_token_limit_of_the_profile_is_the_bound_of_the_reply(engines: Engines) -> None:
    budget = make_budget(tokens=5000)
    with use_meter(budget):
        with pytest.raises(BudgetExceeded):
            await complete(engines, options=ChatOptions(max_tokens=5000))
        await complete(engines, options=ChatOptions(max_tokens=4000))


@pytest.mark.parametrize("text", ["", "x", "word " * 200, "東京" * 100, "🙂" * 50, '"\n\\' * 40])
async def test_bounds_are_above_one_token_per_byte(engines: Engines, text: str) -> None:
    """No tokenizer makes more tokens than bytes, special tokens of each text aside."""
    budget = make_budget(tokens=len(text.encode()) + 3)
    with use_meter(budget), pytest.raises(BudgetExceeded):
        await engines.embedder.embed_query(text)
    assert engines.fake.requests == []


async def test_rejected_input_is_free(engines: Engines) -> None:
    budget = make_budget()
    engines.fake.fail(status=400)
    with use_meter(budget), pytest.raises(PermanentError):
        await complete(engines)
    assert (get_usage(budget).calls, get_usage(budget).failed) == (0, 1)
