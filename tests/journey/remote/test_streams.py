"""Answers that are told while they are made."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn

from anabranch.composition.api import prepare_api
from api.app import create_app
from retrieval.answer.drafts import without_marks
from tests.api_access import BEARER, with_token
from tests.journey.remote.library import (
    ALLOWANCE,
    FOREIGN,
    Library,
    assert_quoted,
)


@asynccontextmanager
async def served(library: Library) -> AsyncIterator[str]:
    """The API behind a socket, where an answer can be read while it is made."""
    async with prepare_api(library.settings, library.dsn) as services:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(with_token(services)), log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
            library.fake.mend()


@asynccontextmanager
async def streaming(library: Library, question: str, **options: Any) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
    """Events of one question, as they come."""
    body = {"query": question, "stream": True, **options}
    async with (
        served(library) as url,
        httpx2.AsyncClient(base_url=url, headers=BEARER, timeout=30) as http,
        http.stream("POST", "/v1/query", json=body) as response,
    ):
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        yield _events(response)


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_a_streamed_answer_tells_its_steps_then_its_words_then_what_is_proven(library: Library) -> None:
    async with streaming(library, ALLOWANCE) as events:
        told = [event async for event in events]
    names = [name for name, _ in told]
    assert (names[0], names[-1], set(names[1:-1])) == ("started", "answer", {"step", "delta"})
    ended = [data["name"] for name, data in told if name == "step" and data["ms"] is not None]
    assert ended == ["plan", "channels", "chunks", "fuse", "rerank", "read", "answer", "judge"]
    deltas = [data for name, data in told if name == "delta"]
    answer = told[-1][1]
    assert len(deltas) > 3 and {delta["draft"] for delta in deltas} == {1}
    assert "".join(delta["text"] for delta in deltas) == without_marks(answer["answer"])
    assert answer["trace"]["tokens"] > 0 and answer["trace"]["model_calls"] == 1
    assert_quoted(answer, library)


async def test_a_stream_of_the_model_that_breaks_off_is_begun_anew_under_another_number(library: Library) -> None:
    library.fake.fail(on="completions", broken=True)
    async with streaming(library, ALLOWANCE) as events:
        told = [event async for event in events]
    second = "".join(data["text"] for name, data in told if name == "delta" and data["draft"] == 2)
    assert {data["draft"] for name, data in told if name == "delta"} == {1, 2} and second == without_marks(told[-1][1]["answer"])


async def test_a_streamed_refusal_has_no_words_and_a_quoted_answer_neither(library: Library) -> None:
    for question, fault, refused in ((FOREIGN, {}, True), (ALLOWANCE, {"status": 400}, False)):
        if fault:
            library.fake.fail(on="completions", **fault)
        async with streaming(library, question) as events:
            told = [event async for event in events]
        assert "delta" not in {name for name, _ in told}
        assert told[-1][0] == "answer" and told[-1][1]["refused"] is refused


async def test_a_question_that_is_wrong_is_refused_before_the_stream_or_told_in_it(library: Library) -> None:
    async with streaming(library, ALLOWANCE, generation="g99") as events:
        told = [event async for event in events]
    assert told[-1][0] == "error" and (told[-1][1]["status"], told[-1][1]["code"]) == (404, "NO_SUCH_GENERATION") and told[-1][1]["remedy"]
    async with served(library) as url, httpx2.AsyncClient(base_url=url, headers=BEARER) as http:
        assert (await http.post("/v1/query", json={"query": "", "stream": True})).status_code == 422
        assert (await http.post("/v1/search", json={"query": "x", "stream": True})).status_code == 422


async def test_words_come_before_the_model_has_ended_and_closing_the_stream_ends_its_work(library: Library) -> None:
    before = library.fake.hung_up
    library.fake.fail(on="completions", stall=True)
    async with streaming(library, ALLOWANCE) as events:
        assert "delta" in [name async for name, _ in _until(events, "delta")]
        assert library.fake.hung_up == before
    async with asyncio.timeout(10):
        while library.fake.hung_up == before:
            await asyncio.sleep(0.01)


async def _until(events: AsyncIterator[tuple[str, dict[str, Any]]], last: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async for event in events:
        yield event
        if event[0] == last:
            return
