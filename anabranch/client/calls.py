"""The calls of the clients: the requests of each, and how it reads their replies.

A call is a generator that yields requests and pauses, is sent the replies, and returns the result.
So `Client` and `AsyncClient` share it, and each only sends and waits.
"""

from __future__ import annotations

import json
import mimetypes
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any, TypedDict, TypeVar, Unpack
from uuid import UUID

from pydantic import ConfigDict, TypeAdapter

from anabranch.http_transport import UNREACHABLE, ApiError, ModelT, Request, Transport
from schemas.channels import Channel
from schemas.events.control import Scope
from schemas.ingest import FINAL_STATES, DocumentState, IngestReceipt
from schemas.profiles import QueryProfileType
from schemas.questions import (
    AnswerDelta,
    ConversationTurn,
    Filters,
    Mode,
    QueryResponse,
    StepProgress,
)
from schemas.responses import AcceptedErasure, ErasureReceipt, JobStatus, Page
from schemas.run_records import RunOutcome

POLL_S = (0.1, 2.0)
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
StreamEvent = StepProgress | AnswerDelta | QueryResponse
Pages = Callable[[Transport, str], "Call[tuple[Sequence[ItemT], str | None]]"]
"""Fetches a page of a list behind a cursor: its items, and the next cursor if there is one."""
Call = Generator[Request | float, Any, ResultT]
"""Yields requests and pauses in seconds, and is sent the reply to each request."""


class IngestOptions(TypedDict, total=False):
    """Fields of IngestRequest."""

    url: str
    text: str
    storage_key: str
    external_id: str
    filename: str
    media_type: str
    source_uri: str
    title: str
    language: str
    collection: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    document_date: date | str
    readers: Sequence[str]
    force: bool


class SearchOptions(TypedDict, total=False):
    """Fields of SearchRequest."""

    k: int
    mode: Mode
    profile: str
    profiles: Mapping[QueryProfileType, str]
    overrides: Mapping[str, Mapping[str, Any]]
    filters: Filters | Mapping[str, Any]
    channels: Sequence[Channel]
    language: str
    prefer_named: bool
    infer_filters: bool
    generation: str
    explain: bool
    return_text: bool


class QueryOptions(SearchOptions, total=False):
    """Fields of QueryRequest."""

    history: Sequence[ConversationTurn | Mapping[str, Any]]
    return_context: bool
    debug: bool


class FeedbackOptions(TypedDict, total=False):
    """Fields of FeedbackRequest."""

    run_id: UUID | str
    query: str
    useful: bool
    chunk_ids: Sequence[UUID | str]
    grades: Mapping[UUID | str, int]
    corrected_answer: str
    note: str
    candidate_rejected: bool


class DocumentOptions(TypedDict, total=False):
    """Parameters of GET /v1/documents."""

    external_id: str
    collection: str
    tag: str
    state: DocumentState
    text: str
    name: str
    date_from: date | str
    date_to: date | str
    sort: str


class RunOptions(TypedDict, total=False):
    """Parameters of GET /v1/runs; `since` and `until` are `from` and `to` there."""

    text: str
    outcome: RunOutcome
    profile: str
    since: datetime | str
    until: datetime | str
    id_prefix: str
    sort: str


class EventOptions(TypedDict, total=False):
    """Parameters of GET /v1/events."""

    topics: str
    document: UUID | str
    since: datetime | str


def ingest(
    client: Transport,
    file: str | Path | bytes | IO[bytes] | None,
    idempotency_key: str | None,
    **options: Unpack[IngestOptions],
) -> Call[IngestReceipt]:
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    body = _to_json(options)
    if file is None:
        reply = yield _make_post("/v1/ingest", body, **headers)
        return client.read(IngestReceipt, reply)
    with ExitStack() as stack:
        content = file
        if isinstance(file, (str, Path)):
            content = stack.enter_context(Path(file).open("rb"))
        name = options.get("filename") or Path(getattr(content, "name", "document")).name
        media_type = options.get("media_type") or mimetypes.guess_type(name)[0]
        form = {
            field: value if isinstance(value, str) else json.dumps(value)
            for field, value in body.items()
        }
        reply = yield Request(
            "POST",
            "/v1/ingest",
            {
                "data": form,
                "files": {"file": (name, content, media_type or "application/octet-stream")},
                "headers": headers,
            },
        )
    return client.read(IngestReceipt, reply)


def wait(client: Transport, job: IngestReceipt | UUID | str, timeout_s: float) -> Call[JobStatus]:
    job_id = job.ingestion_job_id if isinstance(job, IngestReceipt) else job
    for pause in _poll(f"Job {job_id} is not finished", timeout_s):
        reply = yield Request("GET", f"/v1/ingest/status/{job_id}")
        status = client.read(JobStatus, reply)
        if status.state in FINAL_STATES:
            break
        yield pause
    for error in (stage.error for stage in status.stages if status.state == "failed"):
        if error is not None:
            raise ApiError(error.detail, code=error.code, remedy=error.remedy)
    return status


def stream(query: str, **options: Unpack[QueryOptions]) -> Request:
    body = {"query": query, **options, "stream": True}
    return _make_post("/v1/query", _to_json(body))


def parse_stream_event(client: Transport, name: str, data: dict[str, Any]) -> StreamEvent | None:
    model = _STREAM_EVENTS.get(name)
    return client.parse(model, data) if model else None


def check_answered(last_event: StreamEvent | None) -> None:
    if not isinstance(last_event, QueryResponse):
        raise ApiError(
            "The server closed the stream before the answer.",
            code=UNREACHABLE,
            remedy="Repeat the question.",
        )


def list_pages(path: str, model: type[Page[ItemT]], options: Mapping[str, Any]) -> Pages[ItemT]:
    def fetch(client: Transport, after: str) -> Call[tuple[Sequence[ItemT], str | None]]:
        parameters = {**options, "after": after} if after else options
        page = client.read(model, (yield Request("GET", path, {"params": _to_json(parameters)})))
        # A page of the log has a cursor at its end too, for events to come.
        return page.items, None if getattr(page, "end", False) else page.next

    return fetch


def erase(
    client: Transport, name: UUID | str, scope: Scope, timeout_s: float
) -> Call[ErasureReceipt]:
    body = {"scope": scope, "name": name}
    receipt_id = (yield from post(client, AcceptedErasure, "/v1/erasures", body)).receipt_id
    for pause in _poll(f"Erasure {receipt_id} is not complete", timeout_s):
        # Not by its id: the request may not have reached the tables yet.
        reply = yield Request("GET", "/v1/erasures", {"params": {"limit": 500}})
        for receipt in client.read(Page[ErasureReceipt], reply).items:
            if receipt.receipt_id == receipt_id and receipt.state == "done":
                return receipt
        yield pause
    raise AssertionError("unreachable: _poll ends with an error")


def _poll(what: str, timeout_s: float) -> Iterator[float]:
    """Yield pauses in seconds, of growing length. Raises ApiError after `timeout_s`."""
    deadline, pause_s = time.monotonic() + timeout_s, POLL_S[0]
    while time.monotonic() < deadline:
        yield pause_s
        pause_s = min(POLL_S[1], pause_s * 1.3)
    raise ApiError(
        f"{what} after {timeout_s:g} s.",
        code="TIMED_OUT",
        remedy="It continues on the server: raise `timeout_s`, or check `anabranch doctor`.",
    )


def post(
    client: Transport, model: type[ModelT], path: str, body: Mapping[str, Any]
) -> Call[ModelT]:
    return client.read(model, (yield _make_post(path, _to_json(body))))


def _make_post(path: str, body: Mapping[str, Any], **headers: str) -> Request:
    # Not `json`, which httpx2 refuses to send with NaN: the server's error names the way out.
    content = json.dumps(body, ensure_ascii=False)
    headers["Content-Type"] = "application/json"
    return Request("POST", path, {"content": content, "headers": headers})


def _to_json(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body as JSON, of models only the fields that were set."""
    return dict(_ANY.dump_python(dict(body), mode="json", exclude_unset=True))


# Else NaN becomes null without notice.
_ANY: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))
_STREAM_EVENTS: Mapping[str, type[StepProgress | AnswerDelta | QueryResponse]] = {
    "step": StepProgress,
    "delta": AnswerDelta,
    "answer": QueryResponse,
}
