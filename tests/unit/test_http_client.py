from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.cli import main
from anabranch.cli.http_client import ApiClient
from anabranch.cli.ingest import format_summary
from anabranch.cli.ingest_batch import IngestBatch, IngestItem, expand_paths
from anabranch.cli.options import RemoteOptions
from anabranch.cli.query import QueryOptions, read_answer
from anabranch.cli.server_connection import warn_if_server_stops
from anabranch.http_transport import parse_problem
from retrieval.profiles import load_profiles
from schemas.api_keys import Identity
from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    NotFound,
    PermanentError,
    TransientError,
)
from schemas.questions import SearchRequest

RequestHandler = Callable[[httpx2.Request], httpx2.Response]


def make_client(handler: RequestHandler) -> ApiClient:
    found = ApiClient("http://server")
    found.http = httpx2.AsyncClient(
        transport=httpx2.MockTransport(handler), base_url="http://server"
    )
    return found


class ReadErrorOnFirstRequest:
    """A server that has just closed a kept-alive connection which the client reuses."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.methods.append(request.method)
        if len(self.methods) == 1:
            raise httpx2.ReadError("")
        return httpx2.Response(200, json={"state": "running"})


async def test_get_is_retried_after_closed_connection() -> None:
    server = ReadErrorOnFirstRequest()
    async with make_client(server) as http:
        assert await http.get("/v1/ingest/status/1") == {"state": "running"}
    assert server.methods == ["GET", "GET"]


async def test_post_is_sent_once_and_failure_is_named() -> None:
    server = ReadErrorOnFirstRequest()
    async with make_client(server) as http:
        with pytest.raises(TransientError, match="http://server does not answer: ReadError"):
            await http.post("/v1/ingest", {"text": "x"})
    assert server.methods == ["POST"]


async def test_connection_refused_is_not_retried() -> None:
    methods: list[str] = []

    def nobody(request: httpx2.Request) -> httpx2.Response:
        methods.append(request.method)
        raise httpx2.ConnectError("refused")

    async with make_client(nobody) as http:
        with pytest.raises(TransientError, match="refused"):
            await http.get("/health")
    assert methods == ["GET"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (httpx2.Response(200, text="<html>Welcome</html>"), "it is not JSON"),
        (httpx2.Response(200, json=["a"]), "it is not a JSON object"),
        (httpx2.Response(200, json={"user": "x"}), "id: Field required"),
    ],
)
async def test_reply_of_foreign_server_is_a_named_error(
    reply: httpx2.Response, reason: str
) -> None:
    async with make_client(lambda _: reply) as http:
        with pytest.raises(
            PermanentError, match=f"Unexpected reply from http://server: {reason}"
        ) as error:
            http.parse(Identity, await http.get("/v1/whoami"))
    assert error.value.code == "UNEXPECTED_REPLY"


StreamEvent = tuple[str, dict[str, Any]]
ANSWER_EVENT: StreamEvent = ("answer", {"answer": "At six.", "refused": False})


async def stream_events(*events: StreamEvent) -> AsyncIterator[StreamEvent]:
    for event in events:
        yield event


def translate_problem(status: int, text: str) -> AnabranchError:
    return ApiClient("http://server").to_exception(parse_problem(status, text))


async def test_superseded_draft_is_marked_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    deltas = [
        ("delta", {"draft": draft, "text": text})
        for draft, text in ((1, "At "), (1, "five."), (2, "At six."))
    ]
    events = stream_events(*deltas, ANSWER_EVENT)
    assert await read_answer(events, RemoteOptions(), "Retry.") == ANSWER_EVENT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "At five.\ndraft rejected; next draft:\nAt six." in captured.err


async def test_quiet_hides_drafts_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    await read_answer(
        stream_events(
            ("step", {"name": "fuse", "ms": 1.0}),
            ("delta", {"draft": 1, "text": "At"}),
            ANSWER_EVENT,
        ),
        RemoteOptions(quiet=True),
        "Retry.",
    )
    assert capsys.readouterr().err == ""


async def test_ndjson_events_have_schema_version(capsys: pytest.CaptureFixture[str]) -> None:
    events = stream_events(("started", {}), ANSWER_EVENT)
    await read_answer(events, RemoteOptions(as_json=True), "Retry.")
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line["schema_version"]) for line in printed] == [
        ("started", 1),
        ("answer", 1),
    ]


async def test_stream_without_answer_is_an_error() -> None:
    ends = [("started", {}), ("stopped", {"state": "cancelled"})]
    with pytest.raises(TransientError, match="before the answer") as error:
        await read_answer(stream_events(*ends), RemoteOptions(), "Retry.")
    assert error.value.remedy == "Retry."
    stopped = await read_answer(
        stream_events(*ends), RemoteOptions(), "Retry.", ("answer", "stopped")
    )
    assert stopped == ends[1]


@pytest.mark.parametrize(
    "code", ["NOT_FOUND", "NO_SUCH_GENERATION", "INVALID_REQUEST", "BUSY", "NO_SUCH_PATH"]
)
def test_http_remedies_are_replaced_on_command_line(code: str) -> None:
    error = translate_problem(
        404,
        json.dumps(
            {
                "detail": "no document x",
                "code": code,
                "remedy": "GET /v1/documents lists them; see /openapi.json.",
            }
        ),
    )
    assert error.detail == "no document x"
    assert error.remedy
    assert not any(word in error.remedy for word in ("GET", "/v1/", "/openapi.json"))


@pytest.mark.parametrize(
    ("api_remedy", "cli_remedy"),
    [
        (
            "It may not have reached the log yet; GET /v1/runs lists those that have.",
            "It may not have reached the log yet; `anabranch runs list` lists those that have.",
        ),
        (
            "It may still be on its way: GET /v1/documents/{id} says.",
            "It may still be on its way: `anabranch documents show` says.",
        ),
        ("The topics are raw, accepted.", "The topics are raw, accepted."),
        (
            "Use the `next` value of the previous page.",
            "Use the `--after` value printed with the previous page.",
        ),
        (
            "List the tenant's keys with GET /v1/keys or `anabranch keys list`.",
            "List the tenant's keys with `anabranch keys list`.",
        ),
        (
            "List runs with `anabranch runs list` or GET /v1/runs.",
            "List runs with `anabranch runs list`.",
        ),
        (
            "Wait. `GET /v1/dead-letters` lists documents.",
            "Wait. `anabranch dlq list` lists documents.",
        ),
    ],
)
def test_api_call_in_remedy_becomes_cli_command(api_remedy: str, cli_remedy: str) -> None:
    assert (
        translate_problem(
            422, json.dumps({"detail": "x", "code": "INVALID_REQUEST", "remedy": api_remedy})
        ).remedy
        == cli_remedy
    )


def test_body_errors_are_reported_as_options() -> None:
    api_detail = (
        "body.query: the question contains no word; body: set at least one of event_ids, "
        "document_id, stage, code and all"
    )
    cli_detail = (
        "query: the question contains no word; set at least one of event_ids, document_id, "
        "stage, code and all"
    )
    assert (
        translate_problem(422, json.dumps({"detail": api_detail, "code": "INVALID_REQUEST"})).detail
        == cli_detail
    )


def test_other_remedies_are_unchanged_and_non_json_uses_status() -> None:
    assert (
        translate_problem(
            422,
            json.dumps(
                {"detail": "x", "code": "UNKNOWN_PROFILE", "remedy": "Use one of: default."}
            ),
        ).remedy
        == "Use one of: default."
    )
    assert (
        type(translate_problem(404, "nothing here")),
        translate_problem(404, "nothing here").code,
    ) == (NotFound, "HTTP_404")


def test_each_source_is_counted_once() -> None:
    sources = [
        IngestItem("a", "file", state="searchable"),
        IngestItem("b", "file", state="searchable", is_duplicate=True),
        IngestItem("c", "file", state="failed", is_duplicate=True),
        IngestItem("d", "file", state="accepted", is_duplicate=True),
        IngestItem("e", "file", state="running"),
    ]
    assert IngestBatch(sources).build_report()["counts"] == {
        "searchable": 1,
        "failed": 1,
        "duplicate": 2,
    }
    assert [one["state"] for one in IngestBatch(sources).build_report()["documents"]] == [
        "searchable",
        "duplicate",
        "failed",
        "duplicate",
        "running",
    ]
    assert format_summary(sources) == "2 duplicate, 1 searchable, 1 refused, 1 running"
    assert format_summary([]) == "nothing to do"


@pytest.mark.parametrize(
    ("address", "way_out"),
    [
        ("ftp://example.org/a.pdf", "stdin"),
        ("s3://bucket/a.pdf", "stdin"),
        ("file:///a.pdf", "path"),
    ],
)
def test_unsupported_url_scheme_is_rejected_with_alternative(address: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match="Unsupported URL scheme") as caught:
        expand_paths([address], glob="*", recursive=False)
    assert caught.value.code == "FORBIDDEN_ADDRESS"
    assert way_out in caught.value.remedy


@pytest.mark.parametrize("timeout", ["soon", "nan", "-5m", ""])
def test_invalid_timeout_is_rejected_even_if_unused(
    timeout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", "-", f"--timeout={timeout}", "--server", "http://127.0.0.1:9"]) == 2
    assert "Use a number and a unit: 90s, 10m or 2h." in capsys.readouterr().err


def test_channels_and_profile_are_sent_only_when_given() -> None:
    assert not {"channels", "profile"} & QueryOptions().to_request("x").keys()
    assert QueryOptions(profile="default").to_request("x")["profile"] == "default"
    assert QueryOptions(channels="semantic, lexical").to_request("x")["channels"] == [
        "lexical",
        "semantic",
    ]
    with pytest.raises(ConfigurationError, match="'lex'"):
        QueryOptions(channels="lex").to_request("x")


def test_profiles_and_overrides_are_sent_as_the_api_takes_them() -> None:
    options = QueryOptions(
        profiles=("fusion=rrf", "judge=strict"),
        override=(
            *("semantic.k=50", "semantic.enabled=false", "fusion.per_document=null"),
            *("judge.pii.threshold=0.5", 'fusion.edge_types={"SUPPLIES": 2}'),
        ),
    )
    body = options.to_request("x")
    assert body["profiles"] == {"fusion": "rrf", "judge": "strict"}
    catalog = load_profiles(Path(__file__).parents[2] / "profiles")
    profile = catalog.select(SearchRequest.model_validate(body))
    assert (profile.semantic.k, profile.semantic.enabled) == (50, False)
    assert (profile.fusion.method, profile.fusion.per_document) == ("rrf", None)
    assert (profile.judge.pii.threshold, profile.judge.pii.severity) == (0.5, "hard")
    assert profile.fusion.edge_types == {"SUPPLIES": 2.0}


@pytest.mark.parametrize(
    ("options", "message", "remedy"),
    [
        (QueryOptions(profiles=("rrf",)), "--profiles rrf has", "Use --profiles type=name."),
        (QueryOptions(override=("k",)), "--override k has", "Use --override section.key=value."),
        (QueryOptions(override=("k=5",)), "k=5 names no section", "Use --override section.key="),
        (QueryOptions(override=("a.b=[1",)), "Invalid JSON '[1' for a.b", "as JSON"),
    ],
)
def test_malformed_profile_options_name_the_option(
    options: QueryOptions, message: str, remedy: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        options.to_request("x")
    assert message in caught.value.detail and remedy in caught.value.remedy


@pytest.mark.parametrize("state", ["bogus", "superseded"])
def test_unknown_document_state_is_a_usage_error(
    state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["documents", "list", "--state", state, "--server", "http://127.0.0.1:9"])
    assert ended.value.code == 2
    stderr = capsys.readouterr().err
    assert all(name in stderr for name in ("running", "searchable", "failed", "withdrawn"))


@pytest.mark.parametrize(("ephemeral", "expected"), [(True, True), (False, False)])
def test_accepted_only_hint_appears_for_ephemeral_server(
    ephemeral: bool, expected: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    client = ApiClient("http://server", is_ephemeral=ephemeral)
    warn_if_server_stops(client, RemoteOptions())
    warn_if_server_stops(client, RemoteOptions(quiet=True))
    assert (
        capsys.readouterr().err.count("accepted work continues while `anabranch up` runs")
        == expected
    )
    asyncio.run(client.http.aclose())
