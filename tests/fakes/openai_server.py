"""Serve OpenAI's HTTP interface deterministically, with the errors of OpenAI, Azure and vLLM.

Tests inject failures:

with fake_openai() as fake:
    fake.fail(status=429, retry_after=0)           # the next request, once
    fake.fail(on="rerank", times=100, status=500)  # the next 100 rerankings; `mend` ends it
    settings = ServerSettings(base_url=fake.url, model="fake")
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from tests.fakes.failing_server import run_asgi_app
from tests.fakes.grounded_model import (
    answer_from_context,
    build_minimal_value,
    compute_word_overlap,
    judge_from_quotes,
)
from tests.fakes.null_embedder import NullEmbedder

NATIVE_DIMENSION = 64


@dataclass
class ResponseFault:
    """A failure of one request whose path ends in `on`; '' is any path.

    After the first half of a stream `cut` closes the connection, `broken` sends an error in place
    of the rest, `stall` waits until the client disconnects.
    """

    on: str = ""
    status: int = 0
    retry_after: float | None = None
    hang: bool = False
    malformed: bool = False
    body: Any = None
    """sent as JSON in place of the answer; a text as the events of a stream"""
    nan: bool = False
    drop: bool = False
    wrong_dimension: bool = False
    cut: bool = False
    broken: bool = False
    stall: bool = False


@dataclass
class FakeOpenAI:
    """`kind` decides what is refused. `requests` holds (path, body) of all that came, `hung_up`
    counts those whose caller went away before the answer; `say` puts words in the model's mouth for
    the next answers.
    """

    kind: Literal["openai", "azure", "vllm"] = "openai"
    api_key: str = ""
    matryoshka: bool = True
    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    n_disconnects: int = 0
    _faults: deque[ResponseFault] = field(default_factory=deque)
    _queued_answers: deque[Any] = field(default_factory=deque)

    def fail(self, *, times: int = 1, **how: Any) -> None:
        self._faults.extend(ResponseFault(**how) for _ in range(times))

    @property
    def n_pending_faults(self) -> int:
        """Number of injected faults that no request has met yet."""
        return len(self._faults)

    def clear_faults(self) -> None:
        self._faults.clear()

    def get_request_bodies(self, path_suffix: str) -> list[dict[str, Any]]:
        """Return the bodies of the requests whose path ends with `path`."""
        return [body for path, body in self.requests if path.endswith(path_suffix)]

    def queue_answers(self, *answers: Any) -> None:
        """Queue answers: a string is sent as it is, other data as JSON."""
        self._queued_answers.extend(answers)

    def take_fault(self, path: str) -> ResponseFault:
        found = next((fault for fault in self._faults if path.endswith(fault.on)), None)
        if found is None:
            return ResponseFault()
        self._faults.remove(found)
        return found

    def generate_content(self, body: dict[str, Any]) -> str:
        if self._queued_answers:
            answer = self._queued_answers.popleft()
            return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        prompt = "\n".join(
            _extract_text(message["content"])
            for message in body["messages"]
            if message["role"] == "user"
        )
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        if schema is None:
            return answer_from_context(prompt)["sentences"][0]["text"]
        return json.dumps(_follow_schema(prompt, schema), ensure_ascii=False)


def _follow_schema(prompt: str, schema: dict[str, Any]) -> Any:
    names = schema.get("properties", {})
    if "sufficient" in names:
        answer = answer_from_context(prompt)
        # The careful model knows no further words to search for.
        return {**answer, "search": ""} if "search" in names else answer
    if "groundedness" in names:
        return judge_from_quotes(prompt, names)
    return build_minimal_value(schema)


@contextmanager
def fake_openai(**how: Any) -> Iterator[FakeOpenAI]:
    fake = FakeOpenAI(**how)
    with run_asgi_app(_app(fake)) as address:
        fake.url = address if fake.kind == "azure" else f"{address}/v1"
        yield fake


def _app(fake: FakeOpenAI) -> FastAPI:
    app = FastAPI()

    async def answer(request: Request) -> Response:
        return await _answer(fake, request)

    for path in (
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/embed",
        "/v1/rerank",
        "/rerank",
        "/v1/score",
        "/score",
        "/openai/deployments/{model}/chat/completions",
        "/openai/deployments/{model}/embeddings",
    ):
        app.add_api_route(path, answer, methods=["POST"], response_model=None)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": "fake", "object": "model", "created": 0, "owned_by": "tests"}],
        }

    return app


async def _answer(fake: FakeOpenAI, request: Request) -> Response:
    path, body = request.url.path, await request.json()
    fake.requests.append((path, body))
    fault = fake.take_fault(path)
    if fault.hang:
        await _wait_for_disconnect(fake, request)
    if fault.status:
        headers = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
        return _error_response(fault.status, "as told", headers)
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    if fake.api_key and fake.api_key not in (bearer, request.headers.get("api-key")):
        return _error_response(401, f"Incorrect API key provided: {bearer}")
    if fault.malformed:
        return Response("<html>502 somewhere</html>", media_type="text/html")
    if fault.body is not None:
        streamed = isinstance(fault.body, str)
        return Response(
            fault.body if streamed else json.dumps(fault.body),
            media_type="text/event-stream" if streamed else "application/json",
        )
    return await _HANDLERS[path.rsplit("/", 1)[1]](fake, body, fault)


async def _wait_for_disconnect(fake: FakeOpenAI, request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.02)
    fake.n_disconnects += 1


async def _answer_chat(fake: FakeOpenAI, body: dict[str, Any], fault: ResponseFault) -> Response:
    if problem := _find_chat_problem(fake, body):
        return _error_response(400, problem)
    content = fake.generate_content(body)
    usage = {
        "prompt_tokens": sum(
            len(_extract_text(message["content"]).split()) for message in body["messages"]
        ),
        "completion_tokens": len(content.split()),
    }
    usage["total_tokens"] = sum(usage.values())
    if body.get("stream"):
        return StreamingResponse(
            _stream_chat(fake, body, content, usage, fault), media_type="text/event-stream"
        )
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content, "refusal": None},
        "finish_reason": "stop",
    }
    return JSONResponse(
        {
            "id": "chatcmpl-fake",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
    )


def _find_chat_problem(fake: FakeOpenAI, body: dict[str, Any]) -> str | None:
    """Return what OpenAI's own models would refuse in a request, None for nothing."""
    if fake.kind != "vllm":
        for name in ("max_tokens", "temperature"):
            if name in body:
                return f"Unsupported parameter: '{name}' is not supported with this model."
    form = body.get("response_format", {})
    if (
        form.get("type") == "json_schema"
        and form["json_schema"].get("strict")
        and fake.kind != "vllm"
    ):
        return _find_schema_problem(form["json_schema"]["schema"])
    return None


def _find_schema_problem(schema: dict[str, Any]) -> str | None:
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False or set(
            schema.get("required", [])
        ) != set(schema.get("properties", {})):
            return (
                "Invalid schema for response_format: 'additionalProperties' must be false "
                "and all properties must be required."
            )
        return next(filter(None, map(_find_schema_problem, schema["properties"].values())), None)
    return _find_schema_problem(schema["items"]) if schema.get("type") == "array" else None


async def _stream_chat(
    fake: FakeOpenAI,
    body: dict[str, Any],
    content: str,
    usage: dict[str, int],
    fault: ResponseFault,
) -> AsyncIterator[str]:
    shell = {
        "id": "chatcmpl-fake",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body["model"],
    }
    pieces = [content[at : at + 8] for at in range(0, len(content), 8)]
    for place, piece in enumerate(pieces):
        if place > len(pieces) // 2 and (fault.cut or fault.stall):
            await _interrupt_stream(fake, fault)
        if place > len(pieces) // 2 and fault.broken:
            yield _format_event({"error": {"message": "as told", "type": "server_error"}})
            return
        yield _format_event(
            {**shell, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
        )
    yield _format_event({**shell, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if body.get("stream_options", {}).get("include_usage"):
        yield _format_event({**shell, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _format_event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


async def _interrupt_stream(fake: FakeOpenAI, fault: ResponseFault) -> None:
    """Raise, because the server closes the connection (`cut`) or the caller does (`stall`)."""
    if fault.cut:
        raise ConnectionAbortedError("as told")
    try:
        await asyncio.Event().wait()
    finally:
        fake.n_disconnects += 1


async def _answer_embeddings(
    fake: FakeOpenAI, body: dict[str, Any], fault: ResponseFault
) -> Response:
    if "dimensions" in body and not fake.matryoshka:
        return _error_response(
            400,
            f'Model "{body["model"]}" does not support matryoshka representation, changing output '
            "dimensions will lead to poor results.",
        )
    if "messages" in body and fake.kind != "vllm":
        return _error_response(400, "Unrecognized request argument supplied: messages")
    texts = (
        [_extract_text(body["messages"][-1]["content"])]
        if "messages" in body
        else [body["input"]]
        if isinstance(body["input"], str)
        else body["input"]
    )
    if not all(texts):
        return _error_response(400, "'$.input' is invalid: empty strings are not allowed.")
    rows = [
        _truncate_vector(item.vector.astype(np.float32), body.get("dimensions"))
        for item in await NullEmbedder(NATIVE_DIMENSION).embed(texts)
    ]
    data = [
        {"index": place, "object": "embedding", "embedding": _encode_vector(row, body, fault)}
        for place, row in enumerate(rows)
    ]
    returned = data[1:] if fault.drop else list(reversed(data))
    usage = {
        "prompt_tokens": sum(len(text.split()) for text in texts),
        "total_tokens": sum(len(text.split()) for text in texts),
    }
    return _json_response(
        {"object": "list", "model": body["model"], "data": returned, "usage": usage}
    )


def _truncate_vector(row: Any, dimensions: int | None) -> Any:
    short = row[:dimensions]
    return short / np.linalg.norm(short)


def _encode_vector(row: Any, body: dict[str, Any], fault: ResponseFault) -> Any:
    if fault.wrong_dimension:
        row = row[:3]
    if fault.nan:
        row = np.full_like(row, np.nan)
    return (
        base64.b64encode(row.astype("<f4").tobytes()).decode()
        if body.get("encoding_format") == "base64"
        else [float(value) for value in row]
    )


async def _answer_embed(fake: FakeOpenAI, body: dict[str, Any], fault: ResponseFault) -> Response:
    """Answer Cohere's `POST /v2/embed`; without `matryoshka` as a model before v4."""
    texts = body.get("texts", [])
    problems = {
        "invalid request: input_type is required": body.get("input_type")
        not in ("search_document", "search_query", "classification", "clustering"),
        "invalid request: at most 96 texts": not 0 < len(texts) <= 96,
        "invalid request: text cannot be empty": not all(texts),
        "invalid request: embedding_types": body.get("embedding_types") != ["float"],
        "output_dimension is not supported for this model": "output_dimension" in body
        and not fake.matryoshka,
        "invalid request: unknown field": not body.keys()
        <= {"model", "texts", "input_type", "embedding_types", "output_dimension", "truncate"},
    }
    if problem := next((text for text, holds in problems.items() if holds), None):
        return JSONResponse({"id": "fake", "message": problem}, 400)
    rows = [
        _truncate_vector(item.vector.astype(np.float32), body.get("output_dimension"))
        for item in await NullEmbedder(NATIVE_DIMENSION).embed(texts)
    ]
    vectors = [_encode_vector(row, body, fault) for row in rows]
    tokens = sum(len(text.split()) for text in texts)
    return _json_response(
        {
            "id": "embed-fake",
            "texts": texts,
            "embeddings": {"float": vectors[1:] if fault.drop else vectors},
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
            "response_type": "embeddings_by_type",
        }
    )


MAX_RERANKED_DOCUMENTS = 1000


async def _answer_rerank(fake: FakeOpenAI, body: dict[str, Any], fault: ResponseFault) -> Response:
    """Answer as Cohere and Jina do, or as vLLM does, which also returns the documents."""
    texts = [
        document if isinstance(document, str) else _extract_text(document["content"])
        for document in body["documents"]
    ]
    if len(texts) > MAX_RERANKED_DOCUMENTS:
        return _error_response(400, f"too many documents: {len(texts)}")
    if "truncate_prompt_tokens" in body and fake.kind != "vllm":
        return _error_response(422, "unknown field: parameter 'truncate_prompt_tokens'")
    results = [
        {
            "index": place,
            "relevance_score": compute_word_overlap(body["query"], text),
            **({"document": {"text": text, "multi_modal": None}} if fake.kind == "vllm" else {}),
        }
        for place, text in enumerate(texts)
    ]
    ranked = sorted(results, key=lambda item: -item["relevance_score"])[: body.get("top_n") or None]
    if fault.nan:
        ranked[0]["relevance_score"] = float("nan")
    reply: dict[str, Any] = {"id": "rerank-fake", "results": ranked[1:] if fault.drop else ranked}
    if fake.kind == "vllm":
        reply |= {"model": body["model"], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
    else:
        reply["meta"] = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    return _json_response(reply)


async def _answer_score(fake: FakeOpenAI, body: dict[str, Any], fault: ResponseFault) -> Response:
    """Answer as vLLM does; other servers have no such path."""
    if fake.kind != "vllm":
        return _error_response(404, "Not Found")
    queries = body.get("text_1", body.get("queries"))
    documents = body.get("text_2", body.get("documents"))
    if not isinstance(queries, str) or not isinstance(documents, list) or not documents:
        return _error_response(400, "text_1 must be a text and text_2 a list of texts")
    data = [
        {"index": place, "object": "score", "score": compute_word_overlap(queries, text)}
        for place, text in enumerate(documents)
    ]
    if fault.nan:
        data[0]["score"] = float("nan")
    return _json_response(
        {
            "id": "score-fake",
            "object": "list",
            "created": 0,
            "model": body["model"],
            "data": data[1:] if fault.drop else data,
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        }
    )


_HANDLERS = {
    "completions": _answer_chat,
    "embeddings": _answer_embeddings,
    "embed": _answer_embed,
    "rerank": _answer_rerank,
    "score": _answer_score,
}


def _extract_text(content: Any) -> str:
    return (
        content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    )


def _json_response(value: Any) -> Response:
    """Send JSON that may contain NaN, as careless servers do."""
    return Response(json.dumps(value), media_type="application/json")


def _error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(
        {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
        status,
        headers,
    )
