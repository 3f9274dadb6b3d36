"""The OpenAI-compatible API by the `openai` package."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

from api.app import create_app
from retrieval.ranking.query_context import RetrievalResources
from retrieval.retriever import Retriever
from schemas.budgets import ModelUsage
from schemas.errors import TransientError, Unauthenticated
from schemas.ports.engines import TextEmbedding
from schemas.principals import Principal
from schemas.questions import AnswerDelta, OnProgress, PlanTrace, QueryRequest, QueryResponse
from tests.fakes.null_embedder import NullEmbedder
from tests.support.http_server import send_and_disconnect
from tests.unit.api_fakes import make_services
from tests.unit.query_responses import respond

ANSWER = "Merrin Ferries gives **ninety days** of notice [1]. ![x](http://evil.example/p)"
CONTENT = (
    "Merrin Ferries gives **ninety days** of notice [1]. !\\[x](http://evil.example/p)\n\n"
    f"[1]: http://localhost/ui/documents/{'0' * 8}-0000-0000-0000-{'1':0>12}/pages?page=3"
    f"&chunk={'0' * 8}-0000-0000-0000-{'2':0>12} \"Contract 'A' /\""
)
MESSAGES: list[Any] = [
    {"role": "system", "content": "You are a pirate."},
    {"role": "user", "content": "Who runs Merrin Ferries?"},
    {"role": "assistant", "content": "Ana Merrin [1]."},
    {"role": "user", "content": [{"type": "text", "text": "What notice must it give?"}]},
]
USAGE = ModelUsage(
    task="answer", model="m", local=False, calls=1, input_tokens=70, output_tokens=9, cost=None
)


async def authenticate_reader(credential: str | None, tenant: str | None) -> Principal:
    if credential != "reader":
        raise Unauthenticated("Unknown credential.")
    return Principal("key:reader", "default", "reader")


def answer(text: str | None = ANSWER) -> QueryResponse:
    response = respond(text)
    plan = PlanTrace(
        question="What notice must Merrin Ferries give?",
        intent="factoid",
        decided_by="rules",
        keywords=[],
        semantic_query="",
    )
    trace = response.trace.model_copy(update={"plan": plan, "usage": [USAGE]})
    citations = [
        citation.model_copy(update={"title": 'Contract\n"A" \\', "pages": [3, 4]})
        for citation in response.citations
    ]
    return response.model_copy(
        update={"trace": trace, "citations": citations, "message": "Nothing answers this."}
    )


@dataclass
class Answers:
    """Answers every question with `response`, or raises it."""

    response: QueryResponse | Exception = field(default_factory=answer)
    requests: list[QueryRequest] = field(default_factory=list)

    async def query(
        self, caller: Principal, request: QueryRequest, on_progress: OnProgress
    ) -> QueryResponse:
        self.requests.append(request)
        on_progress(AnswerDelta(draft=1, text="unverified"))
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


@asynccontextmanager
async def open_chat(answers: Answers, api_key: str = "reader") -> AsyncIterator[openai.AsyncOpenAI]:
    app = create_app(make_services(authenticate=authenticate_reader, query=answers.query))
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app, raise_app_exceptions=False))
    async with openai.AsyncOpenAI(
        base_url="http://localhost/openai/v1", api_key=api_key, http_client=http, max_retries=0
    ) as client:
        yield client


async def test_models_are_profiles() -> None:
    async with open_chat(Answers()) as client:
        assert [model.id async for model in client.models.list()] == ["default"]
        assert (await client.models.retrieve("default")).owned_by == "anabranch"
        with pytest.raises(openai.NotFoundError, match="Unknown model 'gpt-4o'"):
            await client.models.retrieve("gpt-4o")


async def test_answer_has_markers_links_annotations_and_usage() -> None:
    answers = Answers()
    async with open_chat(answers) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="default", messages=MESSAGES, extra_body={"filters": {"tags": ["t"]}}
        )
    completion = raw.parse()
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == (CONTENT, "stop")
    (annotation,) = choice.message.annotations
    cited = annotation.url_citation
    assert CONTENT[cited.start_index : cited.end_index] == "[1]"
    assert (cited.title, cited.url) == ("Contract 'A' /", completion.citations[0])
    assert completion.usage.total_tokens == 79
    assert raw.headers["x-run-id"] == completion.anabranch["run_id"] == str(respond("").run_id)
    assert completion.anabranch["question"] == "What notice must Merrin Ferries give?"
    (request,) = answers.requests
    assert request.query == "What notice must it give?"
    assert [turn.text for turn in request.history] == [
        "Who runs Merrin Ferries?",
        "Ana Merrin [1].",
    ]
    assert (request.profile, request.filters.tags) == ("default", ["t"])


async def test_stream_holds_the_verified_answer_only() -> None:
    async with open_chat(Answers()) as client:
        stream = await client.chat.completions.create(
            model="default", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == CONTENT and len(deltas) > 3
    assert deltas[-1].annotations[0]["url_citation"]["title"] == "Contract 'A' /"
    assert chunks[-2].choices[0].finish_reason == "stop" and not chunks[-2].anabranch["refused"]
    assert (chunks[-1].choices, chunks[-1].usage.prompt_tokens) == ([], 70)


async def test_citation_after_an_exclamation_mark_stays_one() -> None:
    async with open_chat(Answers(answer("Ninety days![1]"))) as client:
        completion = await client.chat.completions.create(model="default", messages=MESSAGES)
    message = completion.choices[0].message
    (annotation,) = message.annotations
    cited = annotation.url_citation
    assert message.content[: cited.end_index] == "Ninety days! [1]"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("![a](http://evil/?q=1) [1]", "!\\[a](http://evil/?q=1) [1]"),
        (
            r"\<img src=http://evil> </p> <!-- a < 3 [1]",
            r"\< img src=http://evil> < /p> < !-- a < 3",
        ),
        ("[1]: http://evil\n\nNinety days. [1]", "[1] : http://evil"),
        ("Ninety days. [1](http://evil)", "Ninety days. [1] (http://evil)"),
    ],
)
async def test_document_names_no_image_tag_or_target_of_a_citation(text: str, content: str) -> None:
    async with open_chat(Answers(answer(text))) as client:
        completion = await client.chat.completions.create(model="default", messages=MESSAGES)
    message = completion.choices[0].message
    assert message.content.startswith(content)
    for annotation in message.annotations:
        cited = annotation.url_citation
        assert message.content[cited.start_index : cited.end_index] == "[1]"


async def test_stream_keeps_line_separators_of_documents() -> None:
    text = "Ninety\u2028days\u2029of\x85notice. [1]"
    async with open_chat(Answers(answer(text))) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="default", messages=MESSAGES, stream=True
        )
        lines = [line async for line in raw.http_response.aiter_lines() if line]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    parts = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    assert "".join(filter(None, parts)).startswith(text)


async def test_refusal_is_a_message_with_a_flag() -> None:
    async with open_chat(Answers(answer(None))) as client:
        completion = await client.chat.completions.create(model="default", messages=MESSAGES)
    assert completion.choices[0].message.content == "Nothing answers this."
    assert completion.anabranch["refused"] and completion.citations == []


async def test_errors_have_the_shape_of_openai() -> None:
    down = Answers(TransientError("All channels failed.", code="DATABASE_UNAVAILABLE", remedy="R."))
    async with open_chat(down) as client:
        create = client.chat.completions.create
        with pytest.raises(openai.InternalServerError) as failed:
            await create(model="default", messages=MESSAGES)
        assert (failed.value.code, failed.value.type) == ("DATABASE_UNAVAILABLE", "server_error")
        with pytest.raises(openai.APIError, match=r"All channels failed\. R\."):
            async for _ in await create(model="default", messages=MESSAGES, stream=True):
                """The first chunk has only a role."""
        with pytest.raises(openai.NotFoundError, match="Available models"):
            await create(model="gpt-4o", messages=MESSAGES)
    async with open_chat(Answers(), api_key="nobody") as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.models.list()
        assert refused.value.type == "authentication_error"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages": [{"role": "assistant", "content": "Hello."}]}, "last message"),
        (
            {"messages": [{"role": "user", "content": ""}]},
            "messages: .* 1 character. messages: give",
        ),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"messages": [{"role": "user", "content": "x" * 8001}]}, "at most 8000"),
        ({"messages": []}, "messages"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"messages": [*MESSAGES, {"role": "tool", "content": "4", "tool_call_id": "a"}]}, "last"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"logprobs": True}, "logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"n": 2}, "n: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "content",
        ),
    ],
)
async def test_unsupported_requests_are_refused(options: dict[str, Any], message: str) -> None:
    async with open_chat(Answers()) as client:
        with pytest.raises(openai.UnprocessableEntityError, match=message):
            await client.chat.completions.create(
                **{"model": "default", "messages": MESSAGES, **options}
            )


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnect_cancels_the_question(stream: bool) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def query(caller: Principal, request: QueryRequest, _: OnProgress) -> QueryResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    app = create_app(make_services(authenticate=authenticate_reader, query=query))
    body = {"model": "default", "messages": MESSAGES, "stream": stream}
    async with send_and_disconnect(
        app, "/openai/v1/chat/completions", body, "reader"
    ) as disconnect:
        await asyncio.wait_for(started.wait(), 30)
        disconnect()
        await asyncio.wait_for(cancelled.wait(), 30)


class CountingEmbedder(NullEmbedder):
    """Its vector of a text is the text's length and zeros."""

    model = "counting"

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        return [TextEmbedding(np.array([len(text), 0, 0, 0.5], np.float16)) for text in texts]


async def test_texts_are_embedded_by_the_model_of_the_index() -> None:
    unused: Any = None
    embedder = CountingEmbedder(dimension=4)
    resources = RetrievalResources(unused, embedder, None, None, unused, unused)
    retriever = Retriever(resources, unused, unused)
    app = create_app(make_services(authenticate=authenticate_reader, embed=retriever.embed))
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app, raise_app_exceptions=False))
    async with openai.AsyncOpenAI(
        base_url="http://localhost/openai/v1", api_key="reader", http_client=http, max_retries=0
    ) as client:
        create = client.embeddings.create
        # Without `encoding_format` the client requests base64 and decodes it.
        decoded = await create(model="counting", input=["heron", "a"], dimensions=4)
        plain = await create(model="counting", input="heron", encoding_format="float")
        assert [item.embedding for item in decoded.data] == [[5, 0, 0, 0.5], [1, 0, 0, 0.5]]
        assert plain.data[0].embedding == [5, 0, 0, 0.5]
        assert decoded.usage.prompt_tokens > plain.usage.total_tokens > 0
        with pytest.raises(openai.NotFoundError, match="vectors of 'counting'"):
            await create(model="text-embedding-3-small", input="heron")
        refused: list[tuple[Any, dict[str, Any], str]] = [
            ([1, 2], {}, "Send texts"),
            ([[1, 2]], {}, "vocabulary of its own"),
            ("heron", {"dimensions": 3}, "4 dimensions, not 3"),
            ("", {}, "empty text"),
            ([], {}, "empty text"),
            (["a"] * 257, {}, "at most 256 texts"),
            ("a" * 200_001, {}, "at most 256 texts of 200,000"),
        ]
        for texts, options, message in refused:
            with pytest.raises(openai.UnprocessableEntityError, match=message):
                await create(model="counting", input=texts, **options)
