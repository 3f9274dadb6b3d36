"""What engines on a server do when the server misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from engines.chat.openai import OpenAIChat
from engines.embed.openai import OpenAIEmbedder
from engines.rerank.http import HttpReranker
from engines.resilience import Patience
from engines.server_settings import ServerSettings
from schemas.errors import EngineUnavailable, PermanentError, TransientError
from tests.fakes.chunks import passage
from tests.fakes.openai_server import NATIVE_DIMENSION, FakeOpenAI, fake_openai

QUICK = Patience(first_wait=0, longest_wait=0.05, jitter=0, rest=3600)


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with fake_openai(api_key="right") as server:
        yield server


def settings(fake: FakeOpenAI, *, key: str = "right", timeout_s: float = 5) -> ServerSettings:
    return ServerSettings(
        base_url=fake.url, model="fake", api_key=key, timeout_s=timeout_s, kind=fake.kind, api_version="2025-01-01" if fake.kind == "azure" else None
    )


@pytest.fixture
async def embedder(fake: FakeOpenAI) -> AsyncIterator[OpenAIEmbedder]:
    engine = OpenAIEmbedder(settings(fake), dimension=NATIVE_DIMENSION, patience=QUICK)
    yield engine
    await engine.close()


@pytest.mark.parametrize("fault", [{"status": 429, "retry_after": 0}, {"status": 500}, {"status": 503}, {"malformed": True}])
async def test_a_passing_fault_is_tried_again(embedder: OpenAIEmbedder, fake: FakeOpenAI, fault: dict[str, object]) -> None:
    fake.fail(times=2, **fault)
    assert len(await embedder.embed(["a"])) == 1
    assert len(fake.requests) == 3


async def test_a_lasting_fault_says_that_the_engine_is_unavailable(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    fake.fail(times=10, status=500)
    with pytest.raises(EngineUnavailable, match="answered 500"):
        await embedder.embed(["a"])
    assert len(fake.requests) == QUICK.attempts


async def test_a_server_that_is_away_is_told_with_how_often_it_has_answered(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    for text in "ab":
        await embedder.embed([text])
    fake.fail(times=10, status=500)
    with pytest.raises(EngineUnavailable) as away:
        await embedder.embed(["c"])
    assert away.value.answers == 2


async def test_a_server_that_asks_for_a_long_rest_is_not_asked_again(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    fake.fail(times=10, status=429, retry_after=3600)
    with pytest.raises(EngineUnavailable):
        await embedder.embed(["a"])
    assert len(fake.requests) == 1


async def test_after_failures_in_a_row_the_circuit_opens_and_the_server_is_left_alone(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    fake.fail(times=20, status=500)
    for _ in range(3):
        with pytest.raises(EngineUnavailable):
            await embedder.embed(["a"])
    assert len(fake.requests) == QUICK.failures


async def test_refused_input_is_permanent_and_does_not_open_the_circuit(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    fake.fail(times=8, status=400)
    for _ in range(8):
        with pytest.raises(PermanentError) as caught:
            await embedder.embed(["a"])
        assert caught.value.code == "ENGINE_REJECTED_INPUT"
    assert len(await embedder.embed(["a"])) == 1


async def test_a_wrong_key_pauses_work_and_names_the_remedy(fake: FakeOpenAI) -> None:
    engine = OpenAIEmbedder(settings(fake, key="wrong"), dimension=NATIVE_DIMENSION, patience=QUICK)
    with pytest.raises(EngineUnavailable) as caught:
        await engine.embed(["a"])
    assert caught.value.code == "ENGINE_KEY_REFUSED" and "key" in caught.value.remedy
    await engine.close()


async def test_a_hanging_server_is_given_up_at_the_time_out(fake: FakeOpenAI) -> None:
    engine = OpenAIEmbedder(settings(fake, timeout_s=0.1), dimension=NATIVE_DIMENSION, patience=QUICK)
    fake.fail(times=3, hang=True)
    with pytest.raises(EngineUnavailable, match="did not answer"):
        await engine.embed(["a"])
    await engine.close()


async def test_nothing_listening_is_an_unavailable_engine() -> None:
    engine = OpenAIEmbedder(ServerSettings(base_url="http://127.0.0.1:1/v1", model="fake"), dimension=4, patience=QUICK)
    with pytest.raises(EngineUnavailable):
        await engine.embed_query("a")
    await engine.close()


async def test_not_a_number_never_comes_through(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    fake.fail(nan=True)
    with pytest.raises(TransientError, match="NaN") as caught:
        await embedder.embed(["a"])
    assert not isinstance(caught.value, EngineUnavailable), "an engine that is away is waited for without end"


@pytest.mark.parametrize(("fault", "code"), [({"wrong_dimension": True}, "ENGINE_WRONG_DIMENSION"), ({"drop": True}, "ENGINE_BROKEN_ANSWER")])
async def test_vectors_of_another_shape_never_come_through(embedder: OpenAIEmbedder, fake: FakeOpenAI, fault: dict[str, bool], code: str) -> None:
    fake.fail(**fault)
    with pytest.raises(EngineUnavailable) as caught:
        await embedder.embed(["a", "b"])
    assert caught.value.code == code


async def test_vectors_shortened_here_equal_those_the_server_shortens() -> None:
    with fake_openai(matryoshka=True) as willing, fake_openai(matryoshka=False) as unwilling:
        engines = [OpenAIEmbedder(settings(fake), dimension=16, patience=QUICK) for fake in (willing, unwilling)]
        there, here = [(await engine.embed(["one text"]))[0].vector for engine in engines]
        await engines[1].embed(["again"])
        for engine in engines:
            await engine.close()
    assert np.allclose(there, here, atol=1e-3)
    assert ["dimensions" in body for _, body in unwilling.requests] == [True, False, False]


async def test_texts_travel_in_batches_of_the_set_size(fake: FakeOpenAI) -> None:
    engine = OpenAIEmbedder(settings(fake), dimension=NATIVE_DIMENSION, batch=32, patience=QUICK)
    await engine.embed([f"text {n}" for n in range(70)])
    await engine.close()
    assert sorted(len(body["input"]) for _, body in fake.requests) == [6, 32, 32]


@pytest.mark.parametrize("vector", [[10**400] * NATIVE_DIMENSION, [3e38] * NATIVE_DIMENSION, [1e-30] * NATIVE_DIMENSION, "x", None, [[1.0]]])
async def test_what_is_no_vector_never_comes_through(embedder: OpenAIEmbedder, fake: FakeOpenAI, vector: object) -> None:
    fake.fail(times=9, body={"data": [{"index": 0, "embedding": vector}]})
    with pytest.raises(TransientError):
        await embedder.embed(["a"])


@pytest.mark.parametrize("result", [{"index": 0, "relevance_score": 10**400}, {"index": float("inf"), "relevance_score": 0.5}, None, "x"])
async def test_what_is_no_score_never_comes_through(fake: FakeOpenAI, result: object) -> None:
    fake.fail(times=9, body={"results": [result]})
    reranker = HttpReranker(settings(fake), patience=QUICK)
    with pytest.raises(EngineUnavailable) as caught:
        await reranker.rerank("q", None, [passage("a")])
    await reranker.close()
    assert caught.value.code == "ENGINE_BROKEN_ANSWER"


async def test_a_rerank_answer_with_holes_is_not_taken(fake: FakeOpenAI) -> None:
    engine = HttpReranker(settings(fake), patience=QUICK)
    for fault in ({"drop": True}, {"nan": True}):
        fake.fail(**fault)
        with pytest.raises(EngineUnavailable):
            await engine.rerank("bearing", None, [passage("bearing"), passage("cat")])
    await engine.close()


async def test_callers_who_go_away_while_the_model_speaks_open_no_circuit_and_those_who_wait_in_vain_do(fake: FakeOpenAI) -> None:
    chat = OpenAIChat(settings(fake), patience=QUICK)
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}
    for fault, opened in (({"stall": True}, False), ({"hang": True}, True)):
        for _ in range(QUICK.failures):
            fake.fail(**fault)
            seen, spoke = len(fake.requests), asyncio.Event()
            asking = asyncio.create_task(chat.ask("s", "u", schema, name="t", hear=lambda draft, piece, spoke=spoke: spoke.set()))
            await (asyncio.sleep(0) if opened else spoke.wait())
            while len(fake.requests) == seen:
                await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if opened:
            with pytest.raises(EngineUnavailable, match="left alone"):
                await chat.ask("s", "u", schema, name="t")
        else:
            assert (await chat.ask("s", "u", schema, name="t")).data == {"x": ""}
    await chat.close()


async def test_azure_is_asked_at_its_deployment_with_its_version() -> None:
    with fake_openai(kind="azure", api_key="right") as fake:
        chat = OpenAIChat(settings(fake), patience=QUICK)
        schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}
        assert (await chat.ask("s", "u", schema, name="t")).data == {"x": ""}
        await chat.close()
    assert fake.requests[0][0] == "/openai/deployments/fake/chat/completions"
