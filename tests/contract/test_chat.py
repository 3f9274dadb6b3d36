"""Contract of the port `Chat`, run against every kind of server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from types import AsyncGeneratorType
from typing import Any

import pytest

from engines.chat import openai
from engines.chat.openai import OpenAIChat
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import EngineUnavailable, InvalidModelOutput, PermanentError
from schemas.ports.engines import ChatModel, ChatOptions, OnDelta
from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.support.eventually import eventually

SENTENCE = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "citations": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["text", "citations"],
    "additionalProperties": False,
}
STRING_LIST = {"type": "array", "items": {"type": "string"}}
ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sufficient": {"type": "boolean"},
        "sentences": {"type": "array", "items": SENTENCE},
        "assumptions": STRING_LIST,
        "limitations": STRING_LIST,
    },
    "required": ["sufficient", "sentences", "assumptions", "limitations"],
    "additionalProperties": False,
}
PROMPT = (
    "[1] Cats sleep on roofs.\n"
    "[2] The bearing was replaced. The replacement of the bearing cost 18,740 euros.\n\n"
    "Question: What did replacing the bearing cost?"
)


@pytest.fixture(params=["openai", "azure", "vllm"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeOpenAI]:
    with fake_openai(kind=request.param) as server:
        yield server


@pytest.fixture
async def chat(fake: FakeOpenAI) -> AsyncIterator[ChatModel]:
    version = "2025-01-01" if fake.kind == "azure" else None
    engine = OpenAIChat(
        ServerSettings(base_url=fake.url, model="fake", kind=fake.kind, api_version=version),
        retry_policy=ServerRetryPolicy(first_wait_s=0, jitter_s=0),
    )
    yield engine
    await engine.close()


async def test_answer_matches_schema_and_reports_token_usage(chat: ChatModel) -> None:
    reply = await chat.complete("Answer from the context.", PROMPT, ANSWER, name="answer")
    assert reply.data["sufficient"] is True
    assert reply.data["sentences"] == [
        {"text": "The replacement of the bearing cost 18,740 euros.", "citations": [2]}
    ]
    assert reply.model == "fake" and reply.usage.input_tokens > 10 and reply.usage.output_tokens > 5


async def test_options_replace_model_and_token_limit(chat: ChatModel, fake: FakeOpenAI) -> None:
    temperature = 0.5 if fake.kind == "vllm" else None
    options = ChatOptions(model="small", temperature=temperature, max_tokens=77)
    await chat.complete("s", PROMPT, ANSWER, name="answer", options=options)
    (path, body) = fake.requests[0]
    assert body["model"] == "small" and ("small" in path or fake.kind != "azure")
    assert body["max_tokens" if fake.kind == "vllm" else "max_completion_tokens"] == 77
    assert body.get("temperature") == temperature


@pytest.mark.parametrize("fake", ["openai", "azure"], indirect=True)
async def test_server_without_temperature_rejects_one_of_the_profile(fake: FakeOpenAI) -> None:
    version = "2025-01-01" if fake.kind == "azure" else None
    settings = ServerSettings(base_url=fake.url, model="fake", kind=fake.kind, api_version=version)
    chat = OpenAIChat(settings)
    with pytest.raises(PermanentError, match="temperature"):
        await chat.complete("s", PROMPT, ANSWER, name="a", options=ChatOptions(temperature=0.5))
    await chat.close()


async def test_unanswerable_question_is_reported_as_insufficient(chat: ChatModel) -> None:
    reply = await chat.complete(
        "Answer from the context.",
        "[1] Cats sleep on roofs.\n\nQuestion: Quem venceu a eleição?",
        ANSWER,
        name="answer",
    )
    assert reply.data["sufficient"] is False and reply.data["sentences"] == []


async def test_null_bytes_and_lone_surrogates_are_removed(
    chat: ChatModel, fake: FakeOpenAI
) -> None:
    fake.queue_answers(
        json.dumps(
            {
                "sufficient": True,
                "sentences": [{"text": "a\0b\ud83dc", "citations": [1]}],
                "assumptions": ["\ude00"],
                "limitations": ["😀"],
            }
        )
    )
    data = (await chat.complete("s", PROMPT, ANSWER, name="answer")).data
    assert (data["sentences"], data["assumptions"], data["limitations"]) == (
        [{"text": "abc", "citations": [1]}],
        [""],
        ["😀"],
    )


@pytest.mark.parametrize("broken", ["not json", {"sufficient": "yes"}, "[]"])
async def test_schema_violation_is_retried_once(
    chat: ChatModel, fake: FakeOpenAI, broken: Any
) -> None:
    fake.queue_answers(broken)
    reply = await chat.complete("s", PROMPT, ANSWER, name="answer")
    assert reply.data["sufficient"] is True
    assert (
        reply.calls == len(fake.requests) == 2
        and "not valid" in fake.requests[1][1]["messages"][-1]["content"]
    )


async def test_streamed_answer_equals_plain_answer(chat: ChatModel, fake: FakeOpenAI) -> None:
    heard: list[tuple[int, str]] = []
    plain = await chat.complete("Answer from the context.", PROMPT, ANSWER, name="answer")
    streamed = await chat.complete(
        "Answer from the context.",
        PROMPT,
        ANSWER,
        name="answer",
        on_delta=lambda draft, piece: heard.append((draft, piece)),
    )
    assert streamed == plain
    assert json.loads("".join(piece for _, piece in heard)) == plain.data
    assert len(heard) > 5 and {draft for draft, _ in heard} == {1}
    assert [bool(body.get("stream")) for _, body in fake.requests] == [False, True]


@pytest.mark.parametrize("fault", [{"cut": True}, {"broken": True}])
async def test_interrupted_stream_restarts_as_new_draft(
    chat: ChatModel, fake: FakeOpenAI, fault: dict[str, bool]
) -> None:
    heard: list[tuple[int, str]] = []
    fake.fail(**fault)
    reply = await chat.complete(
        "s",
        PROMPT,
        ANSWER,
        name="answer",
        on_delta=lambda draft, piece: heard.append((draft, piece)),
    )
    assert {draft for draft, _ in heard} == {1, 2}
    assert json.loads("".join(piece for draft, piece in heard if draft == 2)) == reply.data


@pytest.mark.parametrize(
    "fault", [{"malformed": True}, {"status": 500}, {"cut": True}, {"broken": True}]
)
async def test_failing_stream_raises_engine_unavailable(
    chat: ChatModel, fake: FakeOpenAI, fault: dict[str, Any]
) -> None:
    fake.fail(times=9, **fault)
    with pytest.raises(EngineUnavailable):
        await chat.complete("s", PROMPT, ANSWER, name="answer", on_delta=lambda draft, piece: None)


MALFORMED_BODIES = [
    [],
    {"choices": "x"},
    {"choices": [None]},
    {"choices": [{"message": "x", "delta": "x"}]},
    {"choices": [{"message": {"content": 7}, "delta": {"content": 7}}]},
    {
        "choices": [
            {"message": {"content": [{"type": "text", "text": "{}"}]}, "delta": {"refusal": {}}}
        ]
    },
    {"choices": [{"message": {"content": "{}"}, "finish_reason": ["stop"]}]},
]


# A reply is read alike from every kind of server.
@pytest.mark.parametrize("fake", ["openai"], indirect=True)
@pytest.mark.parametrize("body", MALFORMED_BODIES, ids=json.dumps)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_malformed_response_raises_engine_unavailable(
    chat: ChatModel, fake: FakeOpenAI, body: Any, is_streamed: bool
) -> None:
    fake.fail(times=9, body=f"data: {json.dumps(body)}\n\n" if is_streamed else body)
    with pytest.raises(EngineUnavailable) as caught:
        await chat.complete(
            "s",
            PROMPT,
            ANSWER,
            name="answer",
            on_delta=(lambda draft, piece: None) if is_streamed else None,
        )
    assert caught.value.code == "ENGINE_BROKEN_ANSWER"


@pytest.mark.parametrize("on_delta", [None, lambda draft, piece: None], ids=["whole", "streamed"])
async def test_endless_answer_is_refused_once(
    chat: ChatModel, fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, on_delta: OnDelta | None
) -> None:
    monkeypatch.setattr(openai, "MAX_CHARACTERS", 1000)
    sentence = {"text": "word " * 20, "citations": [1]}
    lists = {"assumptions": [], "limitations": []}
    fake.queue_answers({"sufficient": True, "sentences": [sentence] * 20, **lists})
    with pytest.raises(EngineUnavailable, match="more than 1,000 characters"):
        await chat.complete("s", PROMPT, ANSWER, name="answer", on_delta=on_delta)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "body", [{"choices": "x"}, {"choices": [{"delta": {"content": 7}}]}], ids=json.dumps
)
async def test_aborted_answer_closes_all_generators(
    chat: ChatModel, fake: FakeOpenAI, body: Any
) -> None:
    begun: list[AsyncGeneratorType[Any, Any]] = []
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=begun.append)
    try:
        fake.fail(times=9, body=f"data: {json.dumps(body)}\n\n" + 'data: {"choices": []}\n\n' * 9)
        with pytest.raises(EngineUnavailable):
            await chat.complete(
                "s", PROMPT, ANSWER, name="answer", on_delta=lambda draft, piece: None
            )
    finally:
        sys.set_asyncgen_hooks(*before)
    assert begun and [generator for generator in begun if generator.ag_frame is not None] == []


async def test_deeply_nested_json_is_a_schema_violation(chat: ChatModel, fake: FakeOpenAI) -> None:
    fake.queue_answers("[" * 100_000)
    assert (await chat.complete("s", PROMPT, ANSWER, name="answer")).calls == 2


@pytest.mark.parametrize(
    "usage",
    [
        "x",
        [1],
        {"prompt_tokens": "many"},
        {"prompt_tokens": -5},
        {"prompt_tokens": 10**30},
        {"prompt_tokens": 1.5},
    ],
    ids=json.dumps,
)
async def test_invalid_token_usage_counts_as_zero(
    chat: ChatModel, fake: FakeOpenAI, usage: Any
) -> None:
    content = {"sufficient": False, "sentences": [], "assumptions": [], "limitations": []}
    fake.fail(
        body={
            "choices": [{"message": {"content": json.dumps(content)}, "finish_reason": "stop"}],
            "usage": usage,
            "model": 7,
        }
    )
    reply = await chat.complete("s", PROMPT, ANSWER, name="answer")
    assert (reply.data, reply.usage.input_tokens, reply.model) == (content, 0, chat.model)


async def test_cancelled_stream_disconnects_from_server(chat: ChatModel, fake: FakeOpenAI) -> None:
    began = asyncio.Event()
    fake.fail(stall=True)
    asking = asyncio.create_task(
        chat.complete("s", PROMPT, ANSWER, name="answer", on_delta=lambda draft, piece: began.set())
    )
    await began.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await eventually(lambda: fake.n_disconnects)


async def test_repeated_schema_violation_raises_model_output(
    chat: ChatModel, fake: FakeOpenAI
) -> None:
    fake.queue_answers("no", "no", "no")
    with pytest.raises(InvalidModelOutput) as caught:
        await chat.complete("s", PROMPT, ANSWER, name="answer")
    assert (
        caught.value.code == "MODEL_OUTPUT"
        and caught.value.calls == len(fake.requests) == 2
        and caught.value.tokens > 20
    )
