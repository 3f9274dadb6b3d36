"""Stream answers while they are generated."""

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
from retrieval.answering.answer_drafts import strip_citation_marks
from tests.journey.remote.corpus import (
    ALLOWANCE_QUESTION,
    UNANSWERABLE_QUESTION,
    IndexedCorpus,
    assert_citations_match_corpus,
)
from tests.support.api_client import BEARER, add_local_token
from tests.support.eventually import eventually


@asynccontextmanager
async def serve_api(corpus: IndexedCorpus) -> AsyncIterator[str]:
    """Serve the API on a socket, where a client can read an answer while it is generated."""
    async with prepare_api(corpus.settings, corpus.dsn) as services:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(add_local_token(services)),
                log_level="error",
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
            corpus.fake.clear_faults()


@asynccontextmanager
async def stream_query(
    corpus: IndexedCorpus, question: str, **options: Any
) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
    """Yield the events of one question as they arrive."""
    body = {"query": question, "stream": True, **options}
    async with (
        serve_api(corpus) as url,
        httpx2.AsyncClient(base_url=url, headers=BEARER, timeout=30) as http,
        http.stream("POST", "/v1/query", json=body) as response,
    ):
        assert response.status_code == 200 and response.headers["content-type"].startswith(
            "text/event-stream"
        )
        yield _parse_events(response)


async def _parse_events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_stream_emits_steps_deltas_and_final_answer(corpus: IndexedCorpus) -> None:
    async with stream_query(corpus, ALLOWANCE_QUESTION) as events:
        messages = [event async for event in events]
    names = [name for name, _ in messages]
    assert (names[0], names[-1], set(names[1:-1])) == ("started", "answer", {"step", "delta"})
    ended = [data["name"] for name, data in messages if name == "step" and data["ms"] is not None]
    assert ended == [
        *("plan", "link", "channels", "chunks", "fuse", "bridge"),
        *("rerank", "read", "evidence", "answer", "judge"),
    ]
    deltas = [data for name, data in messages if name == "delta"]
    answer = messages[-1][1]
    assert len(deltas) > 3 and {delta["draft"] for delta in deltas} == {1}
    assert "".join(delta["text"] for delta in deltas) == strip_citation_marks(answer["answer"])
    assert answer["trace"]["tokens"] > 0 and answer["trace"]["model_calls"] == 3
    assert_citations_match_corpus(answer, corpus)


async def test_streamed_refusal_and_extractive_answer_have_no_deltas(corpus: IndexedCorpus) -> None:
    for question, fault, refused in (
        (UNANSWERABLE_QUESTION, {}, True),
        (ALLOWANCE_QUESTION, {"status": 400}, False),
    ):
        if fault:
            corpus.fake.fail(on="completions", **fault)
        async with stream_query(corpus, question) as events:
            messages = [event async for event in events]
        assert "delta" not in {name for name, _ in messages}
        assert messages[-1][0] == "answer" and messages[-1][1]["refused"] is refused


async def test_invalid_streaming_query_is_rejected_before_or_in_stream(
    corpus: IndexedCorpus,
) -> None:
    async with stream_query(corpus, ALLOWANCE_QUESTION, generation="g99") as events:
        messages = [event async for event in events]
    assert (
        messages[-1][0] == "error"
        and (messages[-1][1]["status"], messages[-1][1]["code"]) == (404, "NO_SUCH_GENERATION")
        and messages[-1][1]["remedy"]
    )
    async with serve_api(corpus) as url, httpx2.AsyncClient(base_url=url, headers=BEARER) as http:
        assert (await http.post("/v1/query", json={"query": "", "stream": True})).status_code == 422
        assert (
            await http.post("/v1/search", json={"query": "x", "stream": True})
        ).status_code == 422


async def test_closing_stream_disconnects_from_model_server(corpus: IndexedCorpus) -> None:
    before = corpus.fake.n_disconnects
    corpus.fake.fail(on="completions", stall=True)
    async with stream_query(corpus, ALLOWANCE_QUESTION) as events:
        assert "delta" in [name async for name, _ in _read_until(events, "delta")]
        assert corpus.fake.n_disconnects == before
    await eventually(lambda: corpus.fake.n_disconnects > before)


async def _read_until(
    events: AsyncIterator[tuple[str, dict[str, Any]]], last: str
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async for event in events:
        yield event
        if event[0] == last:
            return
