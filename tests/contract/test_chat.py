"""The promises of the port Chat, kept for every kind of server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from types import AsyncGeneratorType
from typing import Any

import pytest

from engines.chat.openai import OpenAIChat
from engines.resilience import Patience
from engines.server_settings import ServerSettings
from schemas.errors import EngineUnavailable, ModelOutput
from schemas.ports.engines import Chat
from tests.fakes.openai_server import FakeOpenAI, fake_openai

SENTENCE = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "citations": {"type": "array", "items": {"type": "integer"}}},
    "required": ["text", "citations"],
    "additionalProperties": False,
}
TEXTS = {"type": "array", "items": {"type": "string"}}
ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {"sufficient": {"type": "boolean"}, "sentences": {"type": "array", "items": SENTENCE}, "assumptions": TEXTS, "limitations": TEXTS},
    "required": ["sufficient", "sentences", "assumptions", "limitations"],
    "additionalProperties": False,
}
PROMPT = "[1] Cats sleep on roofs.\n[2] The bearing was replaced. The replacement of the bearing cost 18,740 euros.\n\nQuestion: What did replacing the bearing cost?"


@pytest.fixture(params=["openai", "azure", "vllm"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeOpenAI]:
    with fake_openai(kind=request.param) as server:
        yield server


@pytest.fixture
async def chat(fake: FakeOpenAI) -> AsyncIterator[Chat]:
    version = "2025-01-01" if fake.kind == "azure" else None
    engine = OpenAIChat(ServerSettings(base_url=fake.url, model="fake", kind=fake.kind, api_version=version), patience=Patience(first_wait=0, jitter=0))
    yield engine
    await engine.close()


async def test_an_answer_keeps_to_the_schema_and_says_what_it_cost(chat: Chat) -> None:
    reply = await chat.ask("Answer from the context.", PROMPT, ANSWER, name="answer")
    assert reply.data["sufficient"] is True
    assert reply.data["sentences"] == [{"text": "The replacement of the bearing cost 18,740 euros.", "citations": [2]}]
    assert reply.model == "fake" and reply.usage.input_tokens > 10 and reply.usage.output_tokens > 5


async def test_a_question_that_the_context_does_not_answer_is_said_to_be_so(chat: Chat) -> None:
    reply = await chat.ask("Answer from the context.", "[1] Cats sleep on roofs.\n\nQuestion: Quem venceu a eleição?", ANSWER, name="answer")
    assert reply.data["sufficient"] is False and reply.data["sentences"] == []


async def test_letters_that_no_text_can_hold_are_left_out(chat: Chat, fake: FakeOpenAI) -> None:
    fake.say(json.dumps({"sufficient": True, "sentences": [{"text": "a\0b\ud83dc", "citations": [1]}], "assumptions": ["\ude00"], "limitations": ["😀"]}))
    data = (await chat.ask("s", PROMPT, ANSWER, name="answer")).data
    assert (data["sentences"], data["assumptions"], data["limitations"]) == ([{"text": "abc", "citations": [1]}], [""], ["😀"])


@pytest.mark.parametrize("broken", ["not json", {"sufficient": "yes"}, "[]"])
async def test_an_answer_that_breaks_the_schema_is_asked_for_once_more(chat: Chat, fake: FakeOpenAI, broken: Any) -> None:
    fake.say(broken)
    reply = await chat.ask("s", PROMPT, ANSWER, name="answer")
    assert reply.data["sufficient"] is True
    assert reply.calls == len(fake.requests) == 2 and "not valid" in fake.requests[1][1]["messages"][-1]["content"]


async def test_an_answer_can_be_heard_while_it_is_said_and_is_the_same(chat: Chat, fake: FakeOpenAI) -> None:
    heard: list[tuple[int, str]] = []
    plain = await chat.ask("Answer from the context.", PROMPT, ANSWER, name="answer")
    streamed = await chat.ask("Answer from the context.", PROMPT, ANSWER, name="answer", hear=lambda draft, piece: heard.append((draft, piece)))
    assert streamed == plain
    assert json.loads("".join(piece for _, piece in heard)) == plain.data
    assert len(heard) > 5 and {draft for draft, _ in heard} == {1}
    assert [bool(body.get("stream")) for _, body in fake.requests] == [False, True]


@pytest.mark.parametrize("fault", [{"cut": True}, {"broken": True}])
async def test_an_answer_that_breaks_off_is_void_and_the_next_one_is_another_draft(chat: Chat, fake: FakeOpenAI, fault: dict[str, bool]) -> None:
    heard: list[tuple[int, str]] = []
    fake.fail(**fault)
    reply = await chat.ask("s", PROMPT, ANSWER, name="answer", hear=lambda draft, piece: heard.append((draft, piece)))
    assert {draft for draft, _ in heard} == {1, 2}
    assert json.loads("".join(piece for draft, piece in heard if draft == 2)) == reply.data


@pytest.mark.parametrize("fault", [{"malformed": True}, {"status": 500}, {"cut": True}, {"broken": True}])
async def test_a_stream_that_always_fails_is_an_unavailable_engine(chat: Chat, fake: FakeOpenAI, fault: dict[str, Any]) -> None:
    fake.fail(times=9, **fault)
    with pytest.raises(EngineUnavailable):
        await chat.ask("s", PROMPT, ANSWER, name="answer", hear=lambda draft, piece: None)


ODD = [
    [],
    {"choices": "x"},
    {"choices": {"a": 1}},
    {"choices": [None]},
    {"choices": ["x"]},
    {"choices": [{"message": "x", "delta": "x"}]},
    {"choices": [{"message": {"content": 7}, "delta": {"content": 7}}]},
    {"choices": [{"message": {"content": [{"type": "text", "text": "{}"}]}, "delta": {"refusal": {}}}]},
    {"choices": [{"message": {"content": "{}"}, "finish_reason": ["stop"]}]},
]


@pytest.mark.parametrize("body", ODD, ids=json.dumps)
@pytest.mark.parametrize("heard", [False, True], ids=["whole", "streamed"])
async def test_an_answer_of_no_form_that_there_is_is_an_engine_that_does_not_answer(chat: Chat, fake: FakeOpenAI, body: Any, heard: bool) -> None:
    fake.fail(times=9, body=f"data: {json.dumps(body)}\n\n" if heard else body)
    with pytest.raises(EngineUnavailable) as caught:
        await chat.ask("s", PROMPT, ANSWER, name="answer", hear=(lambda draft, piece: None) if heard else None)
    assert caught.value.code == "ENGINE_BROKEN_ANSWER"


@pytest.mark.parametrize("body", [{"choices": "x"}, {"choices": [{"delta": {"content": 7}}]}], ids=json.dumps)
async def test_an_answer_that_is_given_up_leaves_nothing_open(chat: Chat, fake: FakeOpenAI, body: Any) -> None:
    begun: list[AsyncGeneratorType[Any, Any]] = []
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=begun.append)
    try:
        fake.fail(times=9, body=f"data: {json.dumps(body)}\n\n" + 'data: {"choices": []}\n\n' * 9)
        with pytest.raises(EngineUnavailable):
            await chat.ask("s", PROMPT, ANSWER, name="answer", hear=lambda draft, piece: None)
    finally:
        sys.set_asyncgen_hooks(*before)
    assert begun and [generator for generator in begun if generator.ag_frame is not None] == []


async def test_json_without_a_bottom_breaks_the_schema_and_nothing_else(chat: Chat, fake: FakeOpenAI) -> None:
    fake.say("[" * 100_000)
    assert (await chat.ask("s", PROMPT, ANSWER, name="answer")).calls == 2


@pytest.mark.parametrize(
    "usage", ["x", [1], {"prompt_tokens": "many"}, {"prompt_tokens": -5}, {"prompt_tokens": 10**30}, {"prompt_tokens": 1.5}], ids=json.dumps
)
async def test_what_is_no_number_of_tokens_counts_nothing(chat: Chat, fake: FakeOpenAI, usage: Any) -> None:
    said = {"sufficient": False, "sentences": [], "assumptions": [], "limitations": []}
    fake.fail(body={"choices": [{"message": {"content": json.dumps(said)}, "finish_reason": "stop"}], "usage": usage, "model": 7})
    reply = await chat.ask("s", PROMPT, ANSWER, name="answer")
    assert (reply.data, reply.usage.input_tokens, reply.model) == (said, 0, chat.model)


async def test_whoever_stops_listening_ends_the_models_work(chat: Chat, fake: FakeOpenAI) -> None:
    began = asyncio.Event()
    fake.fail(stall=True)
    asking = asyncio.create_task(chat.ask("s", PROMPT, ANSWER, name="answer", hear=lambda draft, piece: began.set()))
    await began.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    async with asyncio.timeout(10):
        while not fake.hung_up:
            await asyncio.sleep(0.01)


async def test_a_model_that_keeps_breaking_the_schema_fails_for_good(chat: Chat, fake: FakeOpenAI) -> None:
    fake.say("no", "no", "no")
    with pytest.raises(ModelOutput) as caught:
        await chat.ask("s", PROMPT, ANSWER, name="answer")
    assert caught.value.code == "MODEL_OUTPUT" and caught.value.calls == len(fake.requests) == 2 and caught.value.tokens > 20
