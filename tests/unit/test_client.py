from __future__ import annotations

import io
import json
import pickle
import socket
import traceback
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, get_type_hints
from uuid import UUID

import httpx2
import pytest
from pydantic import BaseModel

from anabranch.client import ApiError, AsyncClient, Client, Filters, StepProgress, calls
from schemas.ingest import IngestRequest
from schemas.judgements import FeedbackRequest
from schemas.questions import QueryRequest, SearchRequest
from tests.support.any_client import AnyClient
from tests.unit.query_responses import respond

JOB = "0b7b3c52-7d0f-4a4e-9d9e-2f1d8b1f8a11"
STATUS: dict[str, Any] = {
    "ingestion_job_id": JOB,
    "document_id": None,
    "external_id": None,
    "state": "running",
    "stages": [],
    "chunks_count": 0,
    "tokens_estimate": 0,
    "warnings": [],
}
STAGE: dict[str, Any] = {
    "stage": "parse",
    "state": "failed",
    "attempts": 1,
    "topic": None,
    "partition": None,
    "offset": None,
    "started_at": None,
    "duration_ms": None,
    "error": {"code": "ENCRYPTED", "detail": "It is encrypted.", "remedy": "Decrypt it."},
}
Handler = Callable[[httpx2.Request], httpx2.Response]


ConnectClient = Callable[[Handler], AnyClient]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> ConnectClient:
    """Return a function that makes a client whose requests the handler answers."""

    def make(handler: Handler) -> AnyClient:
        client: Client | AsyncClient
        options: dict[str, Any] = {"transport": httpx2.MockTransport(handler)}
        if request.param == "sync":
            client = Client("http://server", "key")
            client.http = httpx2.Client(**options, **client.settings)
        else:
            client = AsyncClient("http://server", "key")
            client.http = httpx2.AsyncClient(**options, **client.settings)
        found = AnyClient(client)
        request.addfinalizer(lambda: found.__exit__())
        return found

    return make


@pytest.fixture(autouse=True)
def poll_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "POLL_S", (0.0, 0.0))


def problem(status: int, code: str) -> httpx2.Response:
    body = {"status": status, "code": code, "detail": "It is wrong.", "remedy": "Mend it."}
    return httpx2.Response(status, json=body)


@pytest.mark.parametrize(
    ("options", "model", "given"),
    [
        (calls.IngestOptions, IngestRequest, set()),
        (calls.SearchOptions, SearchRequest, {"query"}),
        (calls.QueryOptions, QueryRequest, {"query", "stream"}),
        (calls.FeedbackOptions, FeedbackRequest, set()),
    ],
)
def test_options_are_the_fields_of_the_request(
    options: type, model: type[BaseModel], given: set[str]
) -> None:
    assert set(get_type_hints(options)) == set(model.model_fields) - given


@pytest.mark.parametrize(
    ("options", "path", "given"),
    [
        (calls.DocumentOptions, "/v1/documents", {"after", "limit"}),
        (calls.RunOptions, "/v1/runs", {"after", "limit"}),
        (calls.EventOptions, "/v1/events", {"after", "limit"}),
    ],
)
def test_options_are_the_parameters_of_the_operation(
    options: type, path: str, given: set[str]
) -> None:
    openapi = json.loads(Path("docs/reference/openapi.json").read_text("utf-8"))
    parameters = {one["name"] for one in openapi["paths"][path]["get"]["parameters"]}
    names = {"from": "since", "to": "until"} if path == "/v1/runs" else {}
    assert set(get_type_hints(options)) == {names.get(one, one) for one in parameters} - given


def test_problem_is_one_exception_with_code_and_remedy(connect: ConnectClient) -> None:
    client = connect(lambda request: problem(401, "UNAUTHENTICATED"))
    with pytest.raises(ApiError) as error:
        client.query("Why?")
    assert str(error.value) == "It is wrong. Mend it. [UNAUTHENTICATED]"
    copied = pickle.loads(pickle.dumps(error.value))
    assert (copied.status, copied.code, str(copied)) == (401, "UNAUTHENTICATED", str(error.value))


def test_unreachable_server_is_named_with_a_remedy(connect: ConnectClient) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with pytest.raises(ApiError, match=r"http://server does not answer: refused.*anabranch up"):
        connect(refuse).search("pump")


def test_reply_of_another_server_is_an_error(connect: ConnectClient) -> None:
    for text in ("<html>", "[" * 100_000):
        client = connect(lambda request, text=text: httpx2.Response(200, text=text))
        with pytest.raises(ApiError, match="Unexpected reply from http://server: it is not JSON"):
            client.documents()


def test_redirects_are_not_followed(connect: ConnectClient) -> None:
    seen: list[str] = []

    def redirect(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.host)
        return httpx2.Response(302, headers={"Location": "http://elsewhere/v1/search"})

    with pytest.raises(ApiError, match="Unexpected reply"):
        connect(redirect).search("pump")
    assert seen == ["server"]


def test_request_has_only_what_was_set(connect: ConnectClient) -> None:
    bodies: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append((json.loads(request.content), request.headers["Authorization"]))
        return problem(422, "X")

    with pytest.raises(ApiError):
        connect(answer).query("Why?", filters=Filters(document_ids=[UUID(JOB)]), k=3)
    body = {"query": "Why?", "filters": {"document_ids": [JOB]}, "k": 3}
    assert bodies == [(body, "Bearer key")]


def test_fields_of_a_later_server_are_ignored(connect: ConnectClient) -> None:
    body = respond("At six.").model_dump(mode="json") | {"added_later": 1}
    body["trace"]["added_later"] = {}
    answer = connect(lambda request: httpx2.Response(200, json=body)).query("Why?")
    assert answer == respond("At six.")


def test_wait_polls_until_the_job_is_finished(connect: ConnectClient) -> None:
    states = iter(["accepted", "running", "searchable"])
    client = connect(lambda request: httpx2.Response(200, json=STATUS | {"state": next(states)}))
    assert client.wait(JOB).state == "searchable"


def test_wait_raises_the_error_of_a_failed_document(connect: ConnectClient) -> None:
    failed = STATUS | {"state": "failed", "stages": [STAGE]}
    client = connect(lambda request: httpx2.Response(200, json=failed))
    with pytest.raises(ApiError, match=r"It is encrypted\. Decrypt it\. \[ENCRYPTED\]"):
        client.wait(JOB)


def test_wait_ends_after_its_timeout(connect: ConnectClient) -> None:
    client = connect(lambda request: httpx2.Response(200, json=STATUS))
    with pytest.raises(ApiError, match=r"is not finished after 0\.05 s.*\[TIMED_OUT\]"):
        client.wait(JOB, timeout_s=0.05)


def test_list_fetches_every_page(connect: ConnectClient) -> None:
    run = {
        **dict.fromkeys(("kind", "received_at", "answered_at", "state", "generation", "query")),
        **dict.fromkeys(("profile", "refused", "answer")),
    }
    pages = {None: ([JOB, JOB], "b"), "b": ([JOB], None)}

    def answer(request: httpx2.Request) -> httpx2.Response:
        ids, cursor = pages[request.url.params.get("after")]
        items = [run | {"run_id": run_id} for run_id in ids]
        assert request.url.params["from"] == "2026-01-31"
        return httpx2.Response(200, json={"items": items, "next": cursor})

    found = connect(answer).runs(since=date(2026, 1, 31))
    assert [run.run_id for run in found] == [UUID(JOB)] * 3


def stream(*events: str) -> Handler:
    headers = {"content-type": "text/event-stream"}
    return lambda request: httpx2.Response(200, text="\n\n".join(events), headers=headers)


def test_stream_yields_steps_and_then_the_answer(connect: ConnectClient) -> None:
    answer = respond("At six.")
    events = connect(
        stream(
            "event: started\ndata: {}",
            ": working",
            'event: step\ndata: {"name": "plan", "ms": 2.5}',
            f"event: answer\ndata: {answer.model_dump_json()}",
        )
    ).stream("Why?")
    assert events == [StepProgress(name="plan", ms=2.5), answer]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (['event: error\ndata: {"status": 503, "code": "BUSY"}'], r"\[BUSY\]"),
        (["event: started\ndata: {}"], "closed the stream before the answer"),
        (['event: step\ndata: {"name": "pl'], "breaks off in an event 'step'"),
        (["event: step\ndata: null"], "'step', which is not a JSON object"),
        (["event: answer\ndata: " + "[" * 100_000], "not a JSON object"),
        (['event: answer\ndata: {"answer": 1}'], r"Unexpected reply.*Field required"),
        (['event: error\ndata: {"status": "odd"}'], r"\[HTTP_500\]"),
    ],
)
def test_stream_without_an_answer_is_an_error(
    connect: ConnectClient, events: list[str], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        connect(stream(*events)).stream("Why?")


@pytest.mark.parametrize("make", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("token", "query"), [("clé", "x"), ("line\nbreak", "x"), ("key", "lone \ud800")]
)
def test_request_that_cannot_be_sent_is_named_without_token(
    make: type[Client] | type[AsyncClient], token: str, query: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = AnyClient(make(f"http://127.0.0.1:{server.getsockname()[1]}", token))
        with client, pytest.raises(ApiError, match="Invalid token, ") as error:
            client.search(query)
    printed = "".join(traceback.format_exception(error.value))
    assert token == "key" or not any(shown in printed for shown in (token, repr(token)[1:-1]))


def test_numbers_that_json_lacks_are_sent_to_be_refused(connect: ConnectClient) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        assert b"NaN" in request.read()
        return problem(422, "INVALID_REQUEST")

    client = connect(refuse)
    for call in (
        lambda: client.search("x", filters={"metadata": {"a": float("nan")}}),
        lambda: client.stream("x", overrides={"a": {"b": float("nan")}}),
        lambda: client.ingest(text="x", metadata={"a": float("nan")}),
        lambda: client.ingest(b"x", metadata={"a": float("nan")}),
    ):
        with pytest.raises(ApiError, match="INVALID_REQUEST"):
            call()


def test_refused_stream_is_its_problem(connect: ConnectClient) -> None:
    with pytest.raises(ApiError, match="UNKNOWN_PROFILE"):
        connect(lambda request: problem(422, "UNKNOWN_PROFILE")).stream("Why?")


@pytest.mark.parametrize("kind", ["path", "bytes", "file"])
def test_file_is_uploaded_with_its_fields(
    connect: ConnectClient, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "note.md").write_bytes(b"# Pump")
    files = {"path": tmp_path / "note.md", "bytes": b"# Pump", "file": io.BytesIO(b"# Pump")}
    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["Idempotency-Key"] == "k1"
        bodies.append(request.read())
        return problem(422, "X")

    with pytest.raises(ApiError):
        connect(answer).ingest(
            files[kind],
            **({} if kind == "path" else {"filename": "note.md"}),
            tags=["a", "b"],
            metadata={"n": 1},
            force=True,
            idempotency_key="k1",
        )
    for part in (b'filename="note.md"', b"text/markdown", b"# Pump", b'["a", "b"]', b'{"n": 1}'):
        assert part in bodies[0]
    assert b'name="force"\r\n\r\ntrue' in bodies[0]
