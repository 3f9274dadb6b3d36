"""An OpenAI-compatible API for chat clients: a model is a workflow profile."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, ValidationError

from api import sse
from api.operations import OperationRoute, operation
from api.problems import format_remedy
from api.services import Caller, Services, ServicesDep
from retrieval.prompting import normalize_whitespace
from schemas.citations import Citation
from schemas.errors import InvalidRequest, format_invalid_fields, unknown_resource_error
from schemas.questions import (
    ConversationTurn,
    Filters,
    Progress,
    QueryRequest,
    QueryResponse,
    ignore_progress,
)

router = APIRouter(
    route_class=OperationRoute, prefix="/openai/v1", tags=["openai"], include_in_schema=False
)
MAX_TURNS = 20
MAX_TURN_CHARACTERS = 8000
PIECE_CHARACTERS = 200
MAX_TEXTS, MAX_CHARACTERS = 256, 200_000
"""Limits of a request for embeddings, which takes one core half a minute at most."""
_MARKER = re.compile(r"\[(\d{1,4})\]")


class ContentPart(BaseModel):
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    include_usage: bool = False


class ResponseFormat(BaseModel):
    type: Literal["text"] = "text"


class ChatRequest(BaseModel):
    """A conversation that ends with a question.

    Clients send many more fields, such as `temperature`: the profile decides these.
    """

    model: str = Field(min_length=1, max_length=200)
    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    # Refused rather than ignored, since the answer would not be what was asked for.
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    functions: Annotated[list[Any], Field(max_length=0)] | None = None
    response_format: ResponseFormat | None = None
    logprobs: Literal[False] | None = None
    modalities: list[Literal["text"]] | None = None
    filters: Filters = Field(Filters(), description="Ours: the documents to search.")


@router.get("/models", operation_id="list_models")
@operation("reader")
async def list_models(services: ServicesDep) -> dict[str, Any]:
    """List the workflow profiles."""
    names = services.profiles.list_names()
    return {"object": "list", "data": [_describe_model(name) for name in names]}


@router.get("/models/{model}", operation_id="get_model")
@operation("reader", problems="404 NOT_FOUND")
async def get_model(model: str, services: ServicesDep) -> dict[str, Any]:
    """Get a workflow profile."""
    _check_model(model, services)
    return _describe_model(model)


@router.post("/chat/completions", operation_id="complete_chat", response_model=None)
@operation("reader", problems="404 NOT_FOUND 422 INVALID_REQUEST")
async def complete_chat(
    body: ChatRequest, services: ServicesDep, caller: Caller, request: Request
) -> Response:
    """Answer the last message. Earlier messages resolve its references."""
    _check_model(body.model, services)
    question = _build_question(body)
    completion = Completion(body.model, services.public_url or str(request.base_url).rstrip("/"))
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        return sse.stream_events(
            sse.follow_query(
                request,
                lambda on_progress: services.query(caller, question, on_progress),
                completion.format_chunk({"role": "assistant", "content": ""}),
                partial(completion.format_chunks, with_usage=with_usage),
            )
        )
    response = await sse.run_while_connected(
        request.receive, services.query(caller, question, ignore_progress)
    )
    return JSONResponse(completion.format(response), headers={"X-Run-Id": str(response.run_id)})


class EmbeddingRequest(BaseModel):
    model: str = Field(min_length=1, max_length=200)
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


@router.post("/embeddings", operation_id="create_embeddings")
@operation("reader", problems="404 NOT_FOUND 422 INVALID_REQUEST")
async def create_embeddings(
    body: EmbeddingRequest, services: ServicesDep, caller: Caller, request: Request
) -> dict[str, Any]:
    """Embed texts as the passages of the live index, by its model."""
    work = services.embed(caller, body.model, _list_texts(body))
    embedded = await sse.run_while_connected(request.receive, work)
    if body.dimensions not in (None, embedded.dimension):
        raise InvalidRequest(
            f"{body.model} has vectors of {embedded.dimension} dimensions, not {body.dimensions}.",
            remedy="Omit `dimensions`.",
        )
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": b64encode(vector.astype("<f4").tobytes()).decode()
            if body.encoding_format == "base64"
            else vector.tolist(),
        }
        for index, vector in enumerate(embedded.vectors)
    ]
    usage = {"prompt_tokens": embedded.n_tokens, "total_tokens": embedded.n_tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}


def _list_texts(body: EmbeddingRequest) -> list[str]:
    entries = [body.input] if isinstance(body.input, str) else body.input
    texts = [entry for entry in entries if isinstance(entry, str)]
    if len(texts) < len(entries):
        raise InvalidRequest(
            "`input` holds tokens, and this model has a vocabulary of its own.",
            remedy="Send texts. For LangChain, set check_embedding_ctx_length=False.",
        )
    if not texts or not all(texts):
        raise InvalidRequest("`input` has an empty text or none.", remedy="Leave empty texts out.")
    if len(texts) > MAX_TEXTS or sum(map(len, texts)) > MAX_CHARACTERS:
        raise InvalidRequest(
            f"`input` has {len(texts)} texts of {sum(map(len, texts)):,} characters.",
            remedy=f"Send at most {MAX_TEXTS} texts of {MAX_CHARACTERS:,} characters together.",
        )
    return texts


def _describe_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "anabranch"}


def _check_model(name: str, services: Services) -> None:
    if name not in services.profiles.list_names():
        raise unknown_resource_error(
            "model", repr(name), "Available models: the workflow profiles of GET /openai/v1/models."
        )


def _build_question(body: ChatRequest) -> QueryRequest:
    # The profile has the instructions, so that no client changes how answers are written.
    messages = [one for one in body.messages if one.role not in ("system", "developer")]
    if not messages or messages[-1].role != "user":
        raise InvalidRequest(
            "The last message is not from the user.", remedy="End `messages` with a question."
        )
    turns = [message for message in messages if message.role in ("user", "assistant")]
    try:
        return QueryRequest(
            query=turns[-1].text,
            history=[
                ConversationTurn.model_validate(
                    {"role": turn.role, "text": turn.text[:MAX_TURN_CHARACTERS]}
                )
                for turn in turns[-1 - MAX_TURNS : -1]
            ],
            profile=body.model,
            filters=body.filters,
            return_context=False,
        )
    except ValidationError as error:
        errors = [{**one, "loc": ("messages",)} for one in error.errors()]
        raise InvalidRequest(format_invalid_fields(errors), remedy=format_remedy(errors)) from error


class Completion:
    """Formats a response as a chat completion, or as its chunks."""

    def __init__(self, model: str, base_url: str) -> None:
        self.base_url = base_url
        self.fields = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": model}

    def format(self, response: QueryResponse) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": self._format_content(response),
            "refusal": None,
            "annotations": self._list_annotations(response),
        }
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {
            **self.fields,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _sum_usage(response),
            **self._format_extras(response),
        }

    def format_chunk(self, delta: dict[str, Any], **fields: Any) -> bytes:
        finish_reason = fields.pop("finish_reason", None)
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return self._format_event({"choices": [choice], **fields})

    def format_chunks(self, step: Progress | QueryResponse, *, with_usage: bool) -> Iterator[bytes]:
        """Yield the verified answer and `[DONE]`, and nothing for progress: drafts could not be
        taken back.
        """
        if not isinstance(step, QueryResponse):
            return
        content = self._format_content(step)
        for start in range(0, len(content), PIECE_CHARACTERS):
            yield self.format_chunk({"content": content[start : start + PIECE_CHARACTERS]})
        delta = {"annotations": self._list_annotations(step)}
        yield self.format_chunk(delta, finish_reason="stop", **self._format_extras(step))
        if with_usage:
            yield self._format_event({"choices": [], "usage": _sum_usage(step)})
        yield sse.format_event("[DONE]")

    def _format_event(self, fields: dict[str, Any]) -> bytes:
        chunk = {**self.fields, "object": "chat.completion.chunk", **fields}
        return sse.format_event(json.dumps(chunk, ensure_ascii=False))

    def _format_content(self, response: QueryResponse) -> str:
        """Return the text with a link definition (CommonMark) for each of its `[n]`."""
        links = [
            f'[{citation.n}]: {self._format_url(citation)} "{_format_title(citation)}"'
            for citation in response.citations
        ]
        text = _get_text(response)
        return "\n\n".join((text, "\n".join(links))) if links else text

    def _list_annotations(self, response: QueryResponse) -> list[dict[str, Any]]:
        """List the markers `[n]` of the text."""
        by_number = {citation.n: citation for citation in response.citations}
        return [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": marker.start(),
                    "end_index": marker.end(),
                    "title": _format_title(citation),
                    "url": self._format_url(citation),
                },
            }
            for marker in _MARKER.finditer(_get_text(response))
            if (citation := by_number.get(int(marker[1])))
        ]

    def _format_url(self, citation: Citation) -> str:
        place = {"page": citation.pages[0]} if citation.pages else {}
        query = urlencode({**place, "chunk": citation.chunk_id})
        return f"{self.base_url}/ui/documents/{citation.document_id}/pages?{query}"

    def _format_extras(self, response: QueryResponse) -> dict[str, Any]:
        plan = response.trace.plan
        return {
            "citations": [self._format_url(citation) for citation in response.citations],
            "anabranch": {
                "run_id": str(response.run_id),
                "refused": response.refused,
                "code": response.code,
                "confidence": response.confidence.level,
                "question": plan.question if plan else None,
            },
        }


def _get_text(response: QueryResponse) -> str:
    """Return the answer, or the message of a refusal."""
    text = (response.answer if response.answer is not None else response.message) or ""
    # An exclamation mark before a citation is none of an image.
    text = re.sub(r"!(?=\[\d{1,4}\](?!\())", "! ", text)
    # Nor is a marker of a document the text of a link, or the definition of one before ours.
    text = re.sub(r"(\[\d{1,4}\])(?=[(:\[])", r"\1 ", text)
    # A client would fetch an image that a document names, and so report to its host. No backslash
    # before a tag: the document may have one there, which would escape it.
    return re.sub(r"<(?=[a-zA-Z/!?])", "< ", text).replace("![", "!\\[")


def _format_title(citation: Citation) -> str:
    # One line without what ends a title of a link definition.
    title = normalize_whitespace(citation.title or str(citation.document_id), 200)
    return title.replace('"', "'").replace("\\", "/")


def _sum_usage(response: QueryResponse) -> dict[str, int]:
    """Sum the tokens of all models, those that plan and judge included."""
    prompt = sum(use.input_tokens for use in response.trace.usage)
    written = sum(use.output_tokens for use in response.trace.usage)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
