"""The promises of the port Chat, kept for every kind of server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from engines.chat.openai import OpenAIChat
from engines.openai_server import ServerSettings
from engines.resilience import Patience
from schemas.errors import PermanentError
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


@pytest.mark.parametrize("broken", ["not json", {"sufficient": "yes"}, "[]"])
async def test_an_answer_that_breaks_the_schema_is_asked_for_once_more(chat: Chat, fake: FakeOpenAI, broken: Any) -> None:
    fake.say(broken)
    assert (await chat.ask("s", PROMPT, ANSWER, name="answer")).data["sufficient"] is True
    assert len(fake.requests) == 2 and "not valid" in fake.requests[1][1]["messages"][-1]["content"]


async def test_a_model_that_keeps_breaking_the_schema_fails_for_good(chat: Chat, fake: FakeOpenAI) -> None:
    fake.say("no", "no", "no")
    with pytest.raises(PermanentError) as caught:
        await chat.ask("s", PROMPT, ANSWER, name="answer")
    assert caught.value.code == "MODEL_OUTPUT" and len(fake.requests) == 2
