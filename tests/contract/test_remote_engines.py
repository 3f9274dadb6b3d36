"""Remote engines against a misbehaving server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from engines.chat.openai import OpenAIChat
from engines.embed.openai import OpenAIEmbedder
from engines.rerank.http import HttpReranker
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import EngineUnavailable, PermanentError, TransientError
from tests.fakes.chunks import make_passage
from tests.fakes.openai_server import NATIVE_DIMENSION, FakeOpenAI, fake_openai
from tests.support.eventually import eventually

VECTOR = {"embedding": [0.5] * NATIVE_DIMENSION}
SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "string"}},
    "required": ["x"],
    "additionalProperties": False,
}
FAST_RETRIES = ServerRetryPolicy(first_wait_s=0, max_wait_s=0.05, jitter_s=0, circuit_open_s=3600)


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with fake_openai(api_key="right") as server:
        yield server


def make_settings(fake: FakeOpenAI, *, key: str = "right", timeout_s: float = 5) -> ServerSettings:
    return ServerSettings(
        base_url=fake.url,
        model="fake",
        api_key=key,
        timeout_s=timeout_s,
        kind=fake.kind,
        api_version="2025-01-01" if fake.kind == "azure" else None,
    )


@pytest.fixture
async def embedder(fake: FakeOpenAI) -> AsyncIterator[OpenAIEmbedder]:
    engine = OpenAIEmbedder(
        make_settings(fake), dimension=NATIVE_DIMENSION, retry_policy=FAST_RETRIES
    )
    yield engine
    await engine.close()


@pytest.mark.parametrize(
    "fault",
    [{"status": 429, "retry_after": 0}, {"status": 500}, {"status": 503}, {"malformed": True}],
)
async def test_transient_error_is_retried(
    embedder: OpenAIEmbedder, fake: FakeOpenAI, fault: dict[str, object]
) -> None:
    fake.fail(times=2, **fault)
    assert len(await embedder.embed(["a"])) == 1
    assert len(fake.requests) == 3


async def test_unavailable_error_reports_successful_answer_count(
    embedder: OpenAIEmbedder, fake: FakeOpenAI
) -> None:
    for text in "ab":
        await embedder.embed([text])
    fake.fail(times=10, status=500)
    with pytest.raises(EngineUnavailable) as away:
        await embedder.embed(["c"])
    assert away.value.n_answers == 2


async def test_long_retry_after_is_not_retried(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    fake.fail(times=10, status=429, retry_after=3600)
    with pytest.raises(EngineUnavailable):
        await embedder.embed(["a"])
    assert len(fake.requests) == 1


async def test_consecutive_failures_open_circuit_breaker(
    embedder: OpenAIEmbedder, fake: FakeOpenAI
) -> None:
    fake.fail(times=20, status=500)
    with pytest.raises(EngineUnavailable, match="answered 500"):
        await embedder.embed(["a"])
    assert len(fake.requests) == FAST_RETRIES.attempts
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            await embedder.embed(["a"])
    assert len(fake.requests) == FAST_RETRIES.failure_threshold


async def test_rejected_input_is_permanent_and_keeps_circuit_closed(
    embedder: OpenAIEmbedder, fake: FakeOpenAI
) -> None:
    fake.fail(times=8, status=400)
    for _ in range(8):
        with pytest.raises(PermanentError) as caught:
            await embedder.embed(["a"])
        assert caught.value.code == "ENGINE_REJECTED_INPUT"
    assert len(await embedder.embed(["a"])) == 1


async def test_wrong_api_key_raises_engine_unavailable_with_remedy(fake: FakeOpenAI) -> None:
    engine = OpenAIEmbedder(
        make_settings(fake, key="sk-wrong"), dimension=NATIVE_DIMENSION, retry_policy=FAST_RETRIES
    )
    with pytest.raises(EngineUnavailable) as caught:
        await engine.embed(["a"])
    assert caught.value.code == "ENGINE_KEY_REFUSED" and "key" in caught.value.remedy
    # Some gateways repeat the key; readers of a document see the error.
    assert "sk-wrong" not in caught.value.detail
    await engine.close()


async def test_hanging_server_times_out(fake: FakeOpenAI) -> None:
    engine = OpenAIEmbedder(
        make_settings(fake, timeout_s=0.1), dimension=NATIVE_DIMENSION, retry_policy=FAST_RETRIES
    )
    fake.fail(times=3, hang=True)
    with pytest.raises(EngineUnavailable, match="did not answer"):
        await engine.embed(["a"])
    await engine.close()


async def test_refused_connection_raises_engine_unavailable() -> None:
    engine = OpenAIEmbedder(
        ServerSettings(base_url="http://127.0.0.1:1/v1", model="fake"),
        dimension=4,
        retry_policy=FAST_RETRIES,
    )
    with pytest.raises(EngineUnavailable):
        await engine.embed_query("a")
    await engine.close()


async def test_nan_vector_is_rejected(embedder: OpenAIEmbedder, fake: FakeOpenAI) -> None:
    fake.fail(nan=True)
    with pytest.raises(TransientError, match="NaN") as caught:
        await embedder.embed(["a"])
    assert not isinstance(caught.value, EngineUnavailable), (
        "an engine that is away is waited for without end"
    )


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"wrong_dimension": True}, "ENGINE_WRONG_DIMENSION"),
        ({"drop": True}, "ENGINE_BROKEN_ANSWER"),
        ({"body": {"data": [{**VECTOR, "index": n} for n in (0, 1, 2)]}}, "ENGINE_BROKEN_ANSWER"),
        ({"body": {"data": [{**VECTOR, "index": n} for n in (0, 1, 1)]}}, "ENGINE_BROKEN_ANSWER"),
    ],
)
async def test_vectors_of_wrong_shape_are_rejected(
    embedder: OpenAIEmbedder, fake: FakeOpenAI, fault: dict[str, Any], code: str
) -> None:
    fake.fail(times=9, **fault)
    with pytest.raises(EngineUnavailable) as caught:
        await embedder.embed(["a", "b"])
    assert caught.value.code == code


async def test_client_side_truncation_matches_server_side() -> None:
    with fake_openai(matryoshka=True) as willing, fake_openai(matryoshka=False) as unwilling:
        engines = [
            OpenAIEmbedder(make_settings(fake), dimension=16, retry_policy=FAST_RETRIES)
            for fake in (willing, unwilling)
        ]
        there, here = [(await engine.embed(["one text"]))[0].vector for engine in engines]
        await engines[1].embed(["again"])
        for engine in engines:
            await engine.close()
    assert np.allclose(there, here, atol=1e-3)
    assert ["dimensions" in body for _, body in unwilling.requests] == [True, False, False]


@pytest.mark.parametrize(
    "vector",
    [
        [10**400] * NATIVE_DIMENSION,
        [3e38] * NATIVE_DIMENSION,
        [1e-30] * NATIVE_DIMENSION,
        "x",
        None,
        [[1.0]],
    ],
)
async def test_malformed_vector_is_rejected(
    embedder: OpenAIEmbedder, fake: FakeOpenAI, vector: object
) -> None:
    fake.fail(times=9, body={"data": [{"index": 0, "embedding": vector}]})
    with pytest.raises(TransientError):
        await embedder.embed(["a"])


@pytest.mark.parametrize(
    "result",
    [
        {"index": 0, "relevance_score": 10**400},
        {"index": float("inf"), "relevance_score": 0.5},
        None,
        "x",
    ],
)
async def test_malformed_rerank_score_is_rejected(fake: FakeOpenAI, result: object) -> None:
    fake.fail(times=9, body={"results": [result]})
    reranker = HttpReranker(make_settings(fake), retry_policy=FAST_RETRIES)
    with pytest.raises(EngineUnavailable) as caught:
        await reranker.rerank("q", None, [make_passage("a")])
    await reranker.close()
    assert caught.value.code == "ENGINE_BROKEN_ANSWER"


async def test_cancelled_stream_does_not_open_circuit(fake: FakeOpenAI) -> None:
    chat = OpenAIChat(make_settings(fake), retry_policy=FAST_RETRIES)
    for fault, opened in (({"stall": True}, False), ({"hang": True}, True)):
        for _ in range(FAST_RETRIES.failure_threshold):
            fake.fail(**fault)
            seen, spoke = len(fake.requests), asyncio.Event()
            asking = asyncio.create_task(
                chat.complete(
                    "s",
                    "u",
                    SCHEMA,
                    name="t",
                    on_delta=lambda draft, piece, spoke=spoke: spoke.set(),
                )
            )
            await (asyncio.sleep(0) if opened else spoke.wait())
            await eventually(lambda seen=seen: len(fake.requests) > seen)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if opened:
            with pytest.raises(EngineUnavailable, match="circuit stays open"):
                await chat.complete("s", "u", SCHEMA, name="t")
        else:
            assert (await chat.complete("s", "u", SCHEMA, name="t")).data == {"x": ""}
    await chat.close()


async def test_azure_request_uses_deployment_path() -> None:
    with fake_openai(kind="azure", api_key="right") as fake:
        chat = OpenAIChat(make_settings(fake), retry_policy=FAST_RETRIES)
        assert (await chat.complete("s", "u", SCHEMA, name="t")).data == {"x": ""}
        await chat.close()
    assert fake.requests[0][0] == "/openai/deployments/fake/chat/completions"
