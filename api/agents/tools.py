"""Tools of the MCP server. Each one calls the HTTP API with the agent's credential, which checks
role, tenant, readers and limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import httpx2
from pydantic import BaseModel, ConfigDict, Field, create_model

from api.routes.collections import DocumentCollection
from api.routes.runs import RunArtifacts
from api.sse import iterate_events
from schemas.errors import NotFound, join_sentences
from schemas.judgements import FeedbackReceipt, FeedbackRequest
from schemas.models import Request, get_description
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse
from schemas.responses import JsonObject, Page, ResponseModel

CHUNKS_PER_REQUEST = 500
RECORDING_WAIT_S, RECORDING_POLL_S = 5.0, 0.1
DOCUMENT_FIELDS = (
    *("external_id", "source_uri", "filename", "media_type", "language", "collection", "tags"),
    *("metadata", "document_date", "visible_revision", "pages"),
)


ReportStep = Callable[[str], Awaitable[None]]


class ToolFailure(Exception):
    """A call that the API refused. The text holds reason, remedy and code."""

    def __init__(self, detail: str, code: str, remedy: str = "") -> None:
        super().__init__(f"{join_sentences(detail, remedy)} [{code}]")
        self.code = code


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Calls the HTTP API. Raises ToolFailure for a problem, and if the server does not answer."""

    http: httpx2.AsyncClient
    report_step: ReportStep | None = None
    """Receives each step of an answer, if the agent asks for progress."""

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        with self._translate_errors():
            response = await self.http.request(method, path, **options)
        if response.is_error:
            raise _parse_failure(response)
        return response

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return dict((await self.request("GET", path, params=parameters)).json())

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return dict((await self.request("POST", path, json=body)).json())

    async def follow_answer(self, body: dict[str, Any], report_step: ReportStep) -> dict[str, Any]:
        """Answer a question by server-sent events, and report the steps on the way."""
        with self._translate_errors():
            async with self.http.stream(
                "POST", "/v1/query", json={**body, "stream": True}
            ) as reply:
                if reply.is_error:
                    await reply.aread()
                    raise _parse_failure(reply)
                async for event, data in iterate_events(reply):
                    if event == "step":
                        await report_step(data["name"])
                    elif event == "answer":
                        return data
                    elif event == "error":
                        raise _to_failure(data)
        raise ToolFailure("The answer broke off.", "SERVER_UNREACHABLE", "Ask again.")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.HTTPError as error:
            raise ToolFailure(
                f"{self.http.base_url} does not answer: {str(error) or type(error).__name__}.",
                "SERVER_UNREACHABLE",
                "Start it with `anabranch up`.",
            ) from error


def _parse_failure(response: httpx2.Response) -> ToolFailure:
    try:
        return _to_failure(dict(response.json()))
    except (ValueError, TypeError, KeyError):
        return ToolFailure(response.text[:500], f"HTTP_{response.status_code}")


REMEDY_BY_PATH = {
    "documents": "Use `search` or the list of resources to find documents.",
    "runs": "Use a `run_id` that `search` or `answer` returned.",
    "collections": "Use `list_collections`.",
}


def _to_failure(problem: dict[str, Any]) -> ToolFailure:
    """Return the failure of a problem. An agent has tools in place of the calls of the API."""
    remedy = str(problem["remedy"])
    _, is_call, path = remedy.partition(" /v1/")
    if is_call:
        remedy = next(
            (text for start, text in REMEDY_BY_PATH.items() if path.startswith(start)), ""
        )
    return ToolFailure(problem["detail"], problem["code"], remedy)


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    arguments: type[BaseModel]
    result: type[BaseModel]
    call: Callable[[ApiCaller, Any], Awaitable[dict[str, Any]]]
    is_read_only: bool = True


def select_fields(model: type[BaseModel], *names: str) -> type[BaseModel]:
    """Create a model of some fields, so that a tool's arguments are described once."""
    fields: dict[str, Any] = {
        name: (
            Annotated[
                model.model_fields[name].annotation,
                Field(description=get_description(model, name)),
            ],
            model.model_fields[name],
        )
        for name in names
    }
    return create_model(model.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def to_body(arguments: BaseModel) -> dict[str, Any]:
    """Leave out what the agent did not set: the API and its profiles have the defaults."""
    return arguments.model_dump(mode="json", exclude_unset=True)


async def search(api: ApiCaller, arguments: BaseModel) -> dict[str, Any]:
    found = await api.post("/v1/search", to_body(arguments))
    if (missing := found["trace"]["missing_collections"]) and not found["results"]:
        detail = f"There is no collection {', '.join(map(repr, missing))}."
        raise ToolFailure(detail, "NO_SUCH_COLLECTION", "Use `list_collections`.")
    return found


async def answer(api: ApiCaller, arguments: BaseModel) -> dict[str, Any]:
    # The citations hold the quotes; the passages around them would fill the agent's context.
    body = {**to_body(arguments), "return_context": False}
    if api.report_step is not None:
        return await api.follow_answer(body, api.report_step)
    return await api.post("/v1/query", body)


class FetchArguments(Request):
    id: UUID = Field(description="`document_id` of a result, a citation or a resource.")
    page: int | None = Field(None, ge=1, description="Start at this page, from 1.")
    char_start: int | None = Field(None, ge=0)
    """Start at this character, such as `char_start` of a span."""
    max_characters: int = Field(20_000, ge=1, le=200_000, description="Maximum length of `text`.")


class FetchedText(ResponseModel):
    """The text of a document, or a part of it."""

    id: UUID
    title: str | None
    text: str = Field(description="Markdown. `spans` of results and citations refer to it.")
    url: str = Field(description="The document in the web UI.")
    char_start: int = Field(description="Where `text` starts in the document.")
    characters: int = Field(description="Length of the whole document.")
    next_start: int | None
    """`char_start` of the rest; null at the end of the document."""
    metadata: JsonObject = Field(description="Fields of the document.")


async def fetch(api: ApiCaller, arguments: FetchArguments) -> dict[str, Any]:
    path = f"/v1/documents/{arguments.id}"
    if arguments.page is not None and arguments.char_start is not None:
        raise ToolFailure("page and char_start were both set.", "INVALID_REQUEST", "Set only one.")
    document = await api.get(path)
    text = (await api.request("GET", f"{path}/markdown")).text
    start = arguments.char_start or 0
    if arguments.page is not None:
        start = await _find_page(api, path, arguments.page)
    if start > len(text):
        raise ToolFailure(
            f"char_start {start} is beyond the document's {len(text)} characters.",
            "INVALID_REQUEST",
            "Set a smaller one.",
        )
    end = min(len(text), start + arguments.max_characters)
    return {
        "id": document["document_id"],
        "title": document["title"] or document["filename"],
        "text": text[start:end],
        "url": f"{str(api.http.base_url).rstrip('/')}/ui/documents/{arguments.id}",
        "char_start": start,
        "characters": len(text),
        "next_start": end if end < len(text) else None,
        "metadata": {name: document[name] for name in DOCUMENT_FIELDS},
    }


async def _find_page(api: ApiCaller, path: str, page: int) -> int:
    """Return the character where the page starts."""
    after: int | None = -1
    while after is not None:
        chunks = await api.get(f"{path}/chunks", after=after, limit=CHUNKS_PER_REQUEST)
        starts = [
            span["char_start"]
            for chunk in chunks["items"]
            for span in chunk["spans"]
            if span.get("page") == page
        ]
        if starts:
            return int(min(starts))
        after = chunks["next"]
    raise ToolFailure(
        f"No text is on page {page}.", "NOT_FOUND", "Omit `page`, or set one that a result names."
    )


class ExplainArguments(Request):
    run_id: UUID = Field(description="`run_id` of a search or an answer.")
    candidates: int = Field(10, ge=0, le=100, description="Maximum number of candidates.")


async def explain(api: ApiCaller, arguments: ExplainArguments) -> dict[str, Any]:
    path = f"/v1/runs/{arguments.run_id}/artifacts"
    # The run and its answer arrive through the log, about as fast as an agent asks for them.
    polls = round(RECORDING_WAIT_S / RECORDING_POLL_S)
    for poll in range(polls + 1):
        is_last = poll == polls
        try:
            artifacts = await api.get(path)
        except ToolFailure as failure:
            if is_last or failure.code != NotFound.code:
                raise
        else:
            is_running = artifacts["state"] in (None, "running")
            if is_last or artifacts["trace"] is not None or not is_running:
                break
        await asyncio.sleep(RECORDING_POLL_S)
    if artifacts["trace"] is None:
        raise ToolFailure(
            f"Run {arguments.run_id} has no recorded answer; its state is {artifacts['state']}.",
            "RUN_INCOMPLETE",
            "Call again in a few seconds. If it was stopped, send the question again.",
        )
    # All numbers of hundreds of candidates would fill the agent's context.
    candidates = (artifacts["candidates"] or [])[: arguments.candidates]
    return {**artifacts, "candidates": candidates, "numbers": None}


async def list_collections(api: ApiCaller, arguments: BaseModel) -> dict[str, Any]:
    return await api.get("/v1/collections")


async def feedback(api: ApiCaller, arguments: BaseModel) -> dict[str, Any]:
    return await api.post("/v1/feedback", to_body(arguments))


TOOLS = (
    Tool(
        "search",
        "Find passages of documents. Returns excerpts with document ids and positions; `fetch` "
        "returns more of the text.",
        select_fields(SearchRequest, "query", "k", "filters", "mode", "profile", "language"),
        SearchResponse,
        search,
    ),
    Tool(
        "fetch",
        "Get the text of a document by its id, from its start, a page or a character.",
        FetchArguments,
        FetchedText,
        fetch,
    ),
    Tool(
        "answer",
        "Answer a question from the documents, with verbatim quotes as citations. `refused` is "
        "true if the documents do not answer it; `message` then gives the reason.",
        select_fields(QueryRequest, "query", "filters", "mode", "profile", "language"),
        QueryResponse,
        answer,
    ),
    Tool(
        "explain",
        "Explain how a search or an answer came about: route, candidates with their scores, "
        "passages read, checks, models and times.",
        ExplainArguments,
        RunArtifacts,
        explain,
    ),
    Tool(
        "list_collections",
        "List the collections of documents, with their numbers of documents and languages. "
        "`filters.collections` of `search` and `answer` takes their names.",
        create_model("ListCollections", __config__=ConfigDict(extra="forbid")),
        Page[DocumentCollection],
        list_collections,
    ),
)
FEEDBACK_TOOL = Tool(
    "feedback",
    "Store whether an answer was useful, grades of passages, or a corrected answer.",
    select_fields(
        FeedbackRequest,
        *("run_id", "query", "useful", "chunk_ids", "grades", "corrected_answer", "note"),
    ),
    FeedbackReceipt,
    feedback,
    is_read_only=False,
)
