from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx2
import pytest

from api import middleware
from api.app import create_app
from api.middleware import MAX_JSON_BYTES
from api.routes.files import parse_range
from api.services import Services
from api.sessions import LinkSigner, LinkTarget
from schemas.errors import (
    AnabranchError,
    DatabaseUnavailable,
    FatalError,
    InvalidRequest,
    LogUnavailable,
    NoSpace,
    TransientError,
)
from schemas.findings import DependencyStatus
from schemas.ingest import DOCUMENT_STATES
from schemas.principals import Principal
from schemas.profiles import ReloadedConfig
from schemas.questions import OnProgress, QueryRequest, QueryResponse
from tests.unit.api_fakes import (
    DOCUMENT_ID,
    FILE_BYTES,
    JOB_ID,
    MAX_BYTES,
    FakeIntake,
    RecordingAuditLog,
    make_services,
)


def make_client(of: Services) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(create_app(of), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.fixture
def intake() -> FakeIntake:
    return FakeIntake()


@pytest.fixture
async def client(intake: FakeIntake) -> AsyncIterator[httpx2.AsyncClient]:
    async with make_client(make_services(ingest=intake)) as found:
        yield found


def assert_problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    assert body["status"] == status
    assert body["request_id"] == response.headers["x-request-id"]
    return body


@pytest.mark.parametrize(
    ("tag", "status"),
    [("klingon", 422), ("xx", 422), ("en_US", 422), ("pt-BR", 202), ("tlh", 202), ("zh-Hant", 202)],
)
async def test_unregistered_language_tag_is_rejected(
    client: httpx2.AsyncClient, tag: str, status: int
) -> None:
    answers = [
        await client.post("/v1/ingest", json={"text": "Hi", "language": tag}),
        await client.post("/v1/ingest", files={"file": ("a.md", b"Hi")}, data={"language": tag}),
    ]
    answers += [
        await client.post(path, json={"query": "Hi", "language": tag})
        for path in ("/v1/search", "/v1/query")
        if status == 422
    ]
    for answer in answers:
        assert answer.status_code == status, answer.text
        assert status == 202 or (
            tag in answer.json()["detail"] and "pt-BR" in answer.json()["detail"]
        )


async def test_multipart_upload_stores_file_and_form_fields(
    client: httpx2.AsyncClient, intake: FakeIntake
) -> None:
    fields = {
        "external_id": "e",
        "tags": ["a", "b"],
        "metadata": '{"x": 1}',
        "force": "true",
        "document_date": "2024-02-29",
    }
    response = await client.post(
        "/v1/ingest",
        files={"file": ("né.md", b"# Hi", "text/markdown")},
        data=fields,
        headers={"Idempotency-Key": "once"},
    )
    assert response.status_code == 202, response.text
    assert response.json()["ingestion_job_id"] == str(JOB_ID)
    ((request, upload, event),) = intake.accepted
    assert upload is not None
    assert intake.stored[upload.key] == b"# Hi"
    assert (
        request.external_id,
        request.tags,
        request.metadata,
        request.force,
        request.filename,
        event.event_id,
    ) == ("e", ["a", "b"], {"x": 1}, True, "né.md", "once")


async def test_oversized_upload_is_rejected_while_streaming(
    client: httpx2.AsyncClient, intake: FakeIntake
) -> None:
    response = await client.post(
        "/v1/ingest",
        files={"file": ("big.bin", b"x" * (MAX_BYTES + 1), "application/octet-stream")},
    )
    assert_problem(response, 413, "TOO_LARGE")
    assert intake.accepted == []


async def test_oversized_content_length_is_rejected_before_reading_body(
    client: httpx2.AsyncClient,
) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"x"

    headers = {
        "Content-Length": str(10 * 1024**3),
        "Content-Type": "multipart/form-data; boundary=b",
    }
    response = await client.post("/v1/ingest", content=body(), headers=headers)
    assert_problem(response, 413, "TOO_LARGE")
    assert read == 0


async def test_body_larger_than_limit_is_rejected_while_reading(client: httpx2.AsyncClient) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(2 * MAX_JSON_BYTES // 1_000_000):
            yield b" " * 1_000_000

    response = await client.post(
        "/v1/search", content=body(), headers={"Content-Type": "application/json"}
    )
    assert_problem(response, 413, "TOO_LARGE")


@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        ("text/plain", b"hello", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("", b"hello", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("application/json", b"{", 422, "INVALID_REQUEST"),
        ("application/json", b"[" * 100_000, 422, "INVALID_REQUEST"),
        ("application/json", b"\xff\xfe", 422, "INVALID_REQUEST"),
        ("application/json", b'{"text": "x", "colour": "red"}', 422, "INVALID_REQUEST"),
        ("application/json", b'{"text": "a\\u0000b"}', 422, "INVALID_REQUEST"),
        ("application/json", b'{"text": "a\\ud800b"}', 422, "INVALID_REQUEST"),
        ("application/json", b'"text"', 422, "INVALID_REQUEST"),
        ("multipart/form-data", b"hello", 422, "INVALID_REQUEST"),
        ("multipart/form-data; boundary=b", b"hello", 422, "INVALID_REQUEST"),
        ("multipart/form-data; boundary=b", b"", 422, "INVALID_REQUEST"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhalf',
            422,
            "INVALID_REQUEST",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="title"\r\n\r\nx\r\n--b--\r\n',
            422,
            "INVALID_REQUEST",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="title"\r\n\r\n\x00\r\n--b--\r\n',
            422,
            "INVALID_REQUEST",
        ),
    ],
)
async def test_malformed_ingest_request_is_a_client_error(
    client: httpx2.AsyncClient, content_type: str, body: bytes, status: int, code: str
) -> None:
    response = await client.post(
        "/v1/ingest", content=body, headers={"Content-Type": content_type} if content_type else {}
    )
    assert_problem(response, status, code)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/documents/not-a-uuid",
        "/v1/documents?limit=0",
        "/v1/documents?limit=x",
        "/v1/documents?external_id=%00",
    ],
)
async def test_invalid_parameter_is_a_problem_response(
    client: httpx2.AsyncClient, path: str
) -> None:
    assert_problem(await client.get(path), 422, "INVALID_REQUEST")


LONG_SETTINGS = (["chunk.child_tokens=" + "9" * 1_000], ["a=1"] * 101)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("query", {}),
        ("query", {"query": ""}),
        ("query", {"query": "x", "k": 0}),
        ("query", {"query": "x", "channels": ["smell"]}),
        ("query", {"query": "a\x00b"}),
        ("query", {"query": "x" * 9000}),
        ("query", {"query": "x", "filters": {"metadata": {"key": "x" * 65_536}}}),
        ("query", {"query": "x", "filters": {"metadata": {f"k{n}": 1 for n in range(1_001)}}}),
        *(("generations", {"set": sets, "purpose": "reindex"}) for sets in LONG_SETTINGS),
        *(("generations/plan", {"set": sets}) for sets in LONG_SETTINGS),
    ],
)
async def test_invalid_body_is_a_problem_response(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    assert_problem(await client.post(f"/v1/{path}", json=body), 422, "INVALID_REQUEST")


@pytest.mark.parametrize("rate", [0, -1, 1e-300, 1e308])
@pytest.mark.parametrize(
    ("path", "named", "body"),
    [
        ("/v1/generations", "events_per_second", {"purpose": "rebuild"}),
        ("/v1/replays", "per_second", {"stage": "chunk"}),
        ("/v1/dead-letters/redrive", "per_second", {"all": True}),
    ],
)
async def test_out_of_range_rate_is_rejected(
    client: httpx2.AsyncClient, path: str, named: str, body: dict[str, Any], rate: float
) -> None:
    problem = assert_problem(
        await client.post(path, json={**body, named: rate}), 422, "INVALID_REQUEST"
    )
    assert named in problem["detail"]


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=utf-8", "application/vnd.question+json"],
)
@pytest.mark.parametrize(
    "body",
    [
        '{"query": "a\\u0000b"}',
        '{"query": "a", "filters": {"metadata": {"a": ["b\\u0000"]}}}',
        '{"query": "a", "filters": {"metadata": {"a": NaN}}}',
    ],
)
async def test_values_postgres_cannot_store_are_rejected_in_json(
    client: httpx2.AsyncClient, content_type: str, body: str
) -> None:
    response = await client.post("/v1/search", content=body, headers={"Content-Type": content_type})
    assert assert_problem(response, 422, "INVALID_REQUEST")["detail"].startswith(
        "The body contains"
    )


@pytest.mark.parametrize(
    "metadata", ['{"a": "b\\u0000"}', '{"a": "\\ud800"}', '{"a": 1e999}', '{"a": NaN}']
)
async def test_values_postgres_cannot_store_are_rejected_in_form_metadata(
    client: httpx2.AsyncClient, intake: FakeIntake, metadata: str
) -> None:
    response = await client.post(
        "/v1/ingest", files={"file": ("a.md", b"# Hi")}, data={"metadata": metadata}
    )
    assert assert_problem(response, 422, "INVALID_REQUEST")["detail"].startswith(
        "Form field metadata contains"
    )
    assert intake.accepted == []


@pytest.mark.parametrize(("depth", "status"), [(98, 404), (99, 422), (500, 422), (5_000, 400)])
async def test_deeply_nested_json_is_rejected(
    client: httpx2.AsyncClient, depth: int, status: int
) -> None:
    body = '{"query": "a", "filters": {"metadata": {"a": ' + "[" * depth + "]" * depth + "}}}"
    response = await client.post(
        "/v1/search", content=body, headers={"Content-Type": "application/json"}
    )
    problem = assert_problem(
        response, status, {404: "NOT_FOUND", 422: "INVALID_REQUEST", 400: "BAD_REQUEST"}[status]
    )
    assert status != 422 or problem["detail"] == "The body is nested more than 100 levels deep."


@pytest.mark.parametrize("path", ["/v1/query", "/v1/search", "/v1/ingest"])
async def test_json_syntax_error_reports_line_and_column(
    client: httpx2.AsyncClient, path: str
) -> None:
    broken = '{"query": "é",\n "k": 3'
    body = assert_problem(
        await client.post(path, content=broken, headers={"Content-Type": "application/json"}),
        422,
        "INVALID_REQUEST",
    )
    assert (
        body["detail"] == "The body is not valid JSON: Expecting ',' delimiter at line 2, column 8."
    )
    assert "JSON in UTF-8" in body["remedy"]


async def test_missing_content_type_is_named_in_remedy(client: httpx2.AsyncClient) -> None:
    body = assert_problem(
        await client.post("/v1/query", content=b'{"query": "x"}'), 422, "INVALID_REQUEST"
    )
    assert "Content-Type: application/json" in body["remedy"]


async def test_unknown_document_state_is_rejected_with_known_states(
    client: httpx2.AsyncClient,
) -> None:
    body = assert_problem(await client.get("/v1/documents?state=done"), 422, "INVALID_REQUEST")
    assert all(state in body["detail"] for state in DOCUMENT_STATES)
    assert [
        (await client.get("/v1/documents", params={"state": state})).status_code
        for state in DOCUMENT_STATES
    ] == [200] * len(DOCUMENT_STATES)


async def test_unknown_path_and_method_are_problem_responses(client: httpx2.AsyncClient) -> None:
    assert_problem(await client.get("/v1/nothing"), 404, "NO_SUCH_PATH")
    assert_problem(await client.put("/v1/documents"), 405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LogUnavailable("the log is away"), 503),
        (DatabaseUnavailable("the database is away"), 503),
        (TransientError("too many", code="BUSY"), 503),
        (InvalidRequest("no", code="FORBIDDEN_KEY"), 403),
        (InvalidRequest("no", code="IDEMPOTENCY_KEY_REUSED"), 422),
        (FatalError("gone"), 500),
        (OSError(errno.ENOSPC, "full"), 507),
        (RuntimeError("secret detail"), 500),
    ],
)
async def test_errors_map_to_http_status_and_retry_after(error: Exception, status: int) -> None:
    class Failing(FakeIntake):
        async def submit_document(self, *_: Any) -> Any:
            raise error

    async with make_client(make_services(ingest=Failing())) as client:
        response = await client.post("/v1/ingest", json={"text": "x"})
    body = assert_problem(
        response,
        status,
        error.code if isinstance(error, AnabranchError) else {507: "NO_SPACE", 500: "BUG"}[status],
    )
    assert ("retry-after" in response.headers) == (status == 503)
    assert "secret detail" not in str(body)


async def test_valid_request_id_is_echoed_and_invalid_one_replaced(
    client: httpx2.AsyncClient,
) -> None:
    assert (await client.get("/livez", headers={"X-Request-ID": "mine-1"})).headers[
        "x-request-id"
    ] == "mine-1"
    assert (await client.get("/livez", headers={"X-Request-ID": "a b;c"})).headers[
        "x-request-id"
    ] != "a b;c"


async def test_file_range_request_returns_partial_content(client: httpx2.AsyncClient) -> None:
    whole = await client.get(f"/v1/documents/{DOCUMENT_ID}/file")
    assert (whole.status_code, whole.content, whole.headers["accept-ranges"]) == (
        200,
        FILE_BYTES,
        "bytes",
    )
    part = await client.get(f"/v1/documents/{DOCUMENT_ID}/file", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content, part.headers["content-range"]) == (
        206,
        FILE_BYTES[10:20],
        f"bytes 10-19/{len(FILE_BYTES)}",
    )
    assert_problem(
        await client.get(
            f"/v1/documents/{DOCUMENT_ID}/file", headers={"Range": f"bytes={len(FILE_BYTES)}-"}
        ),
        416,
        "RANGE_NOT_SATISFIABLE",
    )
    assert "n%C3%A3o.bin" in whole.headers["content-disposition"]


async def test_file_and_markdown_of_one_revision_are_served(client: httpx2.AsyncClient) -> None:
    at = f"/v1/documents/{DOCUMENT_ID}"
    assert (await client.get(f"{at}/file", params={"revision": 1})).content == FILE_BYTES
    assert (await client.get(f"{at}/markdown", params={"revision": 1})).text == "# Title"
    for path in ("file", "markdown"):
        unknown = await client.get(f"{at}/{path}", params={"revision": 2})
        assert_problem(unknown, 404, "NOT_FOUND")
        assert_problem(
            await client.get(f"{at}/{path}", params={"revision": 2**31}), 422, "INVALID_REQUEST"
        )
    signed = await client.get(f"{at}/file", params={"revision": 1, "signed": True})
    assert_problem(signed, 422, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=5-", (5, 100)),
        ("bytes=-5", (95, 100)),
        ("bytes=-500", (0, 100)),
        ("bytes=0-1000", (0, 100)),
    ]
    + [(ignored, None) for ignored in ("bytes=1-2,5-6", "lines=1-2", "bytes=-", "bytes=a-b")],
)
def test_range_header_is_parsed_per_rfc(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert parse_range(header, 100) == expected


async def test_unknown_resource_is_404_with_remedy(client: httpx2.AsyncClient) -> None:
    unknown = UUID(int=7)
    for path in (
        "documents/{}",
        "documents/{}/file",
        "documents/{}/markdown",
        "documents/{}/chunks",
        "documents/{}/entities",
        "runs/{}",
        "entities/{}",
        "ingest/status/{}",
    ):
        assert assert_problem(await client.get("/v1/" + path.format(unknown)), 404, "NOT_FOUND")[
            "remedy"
        ]
    assert_problem(await client.delete(f"/v1/documents/{unknown}"), 404, "NOT_FOUND")


async def test_delete_is_accepted_and_withdraws_document(
    client: httpx2.AsyncClient, intake: FakeIntake
) -> None:
    assert (await client.delete(f"/v1/documents/{DOCUMENT_ID}")).status_code == 202
    assert intake.withdrawn == [DOCUMENT_ID]


async def test_patch_amends_only_given_fields(
    client: httpx2.AsyncClient, intake: FakeIntake
) -> None:
    answer = await client.patch(
        f"/v1/documents/{DOCUMENT_ID}", json={"title": None, "tags": [], "metadata": {"k": None}}
    )
    assert (answer.status_code, answer.json()["ingestion_job_id"]) == (202, str(JOB_ID))
    assert intake.amended == [{"tags": [], "metadata": {"k": None}}]
    assert_problem(
        await client.patch(f"/v1/documents/{UUID(int=7)}", json={"title": "t"}), 404, "NOT_FOUND"
    )
    assert_problem(
        await client.patch(f"/v1/documents/{DOCUMENT_ID}", json={"text": "t"}),
        422,
        "INVALID_REQUEST",
    )


async def test_readyz_fails_while_a_dependency_is_unavailable() -> None:
    async def ready() -> list[DependencyStatus]:
        return [
            DependencyStatus("database", True, "answers"),
            DependencyStatus("log", False, "away", "start it"),
        ]

    async with make_client(make_services(check_readiness=ready)) as client:
        response = await client.get("/readyz")
        assert (response.status_code, response.json()["dependencies"]["log"]["ok"]) == (503, False)
        assert (await client.get("/livez")).status_code == 200


async def test_operation_ids_are_unique_and_problems_documented() -> None:
    document = create_app(make_services()).openapi()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(
        "application/problem+json" in operation["responses"]["4XX"]["content"]
        for path, methods in document["paths"].items()
        if path.startswith("/v1")
        for operation in methods.values()
    )


async def test_signed_link_serves_file_until_expired_or_altered(client: httpx2.AsyncClient) -> None:
    link = (await client.get(f"/v1/documents/{DOCUMENT_ID}/file", params={"signed": True})).json()
    assert (await client.get(link["url"])).content == FILE_BYTES
    assert_problem(await client.get(link["url"] + "0"), 422, "LINK_FORGED")
    signed, revision = f"/v1/signed/default/{DOCUMENT_ID}", {"revision": 1, "expires": 1}
    assert_problem(
        await client.get(signed, params={**revision, "signature": "ü"}), 422, "LINK_FORGED"
    )
    past = LinkSigner(b"secret").sign(LinkTarget("default", DOCUMENT_ID, 1), 1)
    assert_problem(
        await client.get(signed, params={**revision, "signature": past}), 422, "LINK_EXPIRED"
    )


async def test_signed_link_is_bound_to_tenant_document_and_revision(
    client: httpx2.AsyncClient,
) -> None:
    until = int(time.time()) + 60
    for linked in (
        LinkTarget("other", DOCUMENT_ID, 1),
        LinkTarget("default", JOB_ID, 1),
        LinkTarget("default", DOCUMENT_ID, 2),
    ):
        forged = {
            "revision": 1,
            "expires": until,
            "signature": LinkSigner(b"secret").sign(linked, until),
        }
        assert_problem(
            await client.get(f"/v1/signed/default/{DOCUMENT_ID}", params=forged), 422, "LINK_FORGED"
        )
    older = {
        "revision": 2,
        "expires": until,
        "signature": LinkSigner(b"secret").sign(LinkTarget("default", DOCUMENT_ID, 2), until),
    }
    assert_problem(
        await client.get(f"/v1/signed/default/{DOCUMENT_ID}", params=older), 404, "NOT_FOUND"
    )


async def test_streamed_query_error_event_has_code_and_remedy(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/query", json={"query": "x", "stream": True})
    assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (
        200,
        "text/event-stream",
    )
    names = [
        line.removeprefix("event: ")
        for line in response.text.splitlines()
        if line.startswith("event: ")
    ]
    assert names == ["started", "step", "error"]
    problem = json.loads(response.text.strip().splitlines()[-1].removeprefix("data: "))
    assert (problem["status"], problem["code"], problem["remedy"], problem["request_id"]) == (
        404,
        "NOT_FOUND",
        "None.",
        response.headers["x-request-id"],
    )


async def test_streamed_query_bug_is_reported_without_details() -> None:
    async def broken(caller: Principal, request: QueryRequest, tell: OnProgress) -> QueryResponse:
        raise RuntimeError("a secret of the inside")

    async with make_client(make_services(query=broken)) as client:
        text = (await client.post("/v1/query", json={"query": "x", "stream": True})).text
    assert "event: error" in text and '"code":"BUG"' in text and "secret" not in text


async def test_request_over_concurrency_limit_is_busy_but_health_responds() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    class Slow(FakeIntake):
        async def submit_document(self, *arguments: Any) -> Any:
            entered.set()
            await leave.wait()
            return await super().submit_document(*arguments)

    transport = httpx2.ASGITransport(create_app(make_services(ingest=Slow()), max_requests=1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        first = asyncio.create_task(client.post("/v1/ingest", json={"text": "x"}))
        await entered.wait()
        second = await client.get("/v1/documents")
        assert_problem(second, 503, "BUSY")
        assert second.headers["retry-after"]
        assert (await client.get("/livez")).status_code == 200
        leave.set()
        assert (await first).status_code == 202
        assert (await client.get("/v1/documents")).status_code == 200


@pytest.mark.parametrize("header", ["bytes={0}-", "bytes=0-{0}", "bytes=-{0}", "bytes={0}-{0}"])
async def test_range_with_thousands_of_digits_is_unsatisfiable(
    client: httpx2.AsyncClient, header: str
) -> None:
    response = await client.get(
        f"/v1/documents/{DOCUMENT_ID}/file", headers={"Range": header.format("9" * 5000)}
    )
    assert len(assert_problem(response, 416, "RANGE_NOT_SATISFIABLE")["detail"]) < 200


@pytest.mark.parametrize(
    "name", ["collections", "tags", "document_ids", "external_ids", "languages"]
)
async def test_filter_over_a_thousand_entries_is_refused(
    client: httpx2.AsyncClient, name: str
) -> None:
    entry = str(DOCUMENT_ID) if name == "document_ids" else "x"
    for path in ("query", "search"):
        body = {"query": "what?", "filters": {name: [entry] * 1_001}}
        assert (
            "1000"
            in assert_problem(await client.post(f"/v1/{path}", json=body), 422, "INVALID_REQUEST")[
                "detail"
            ]
        )


async def test_external_id_is_bounded_in_bytes(
    client: httpx2.AsyncClient, intake: FakeIntake
) -> None:
    response = await client.post("/v1/ingest", json={"text": "x", "external_id": "\u00fc" * 600})
    assert "1200 bytes" in assert_problem(response, 422, "INVALID_REQUEST")["detail"]
    assert (
        await client.post("/v1/ingest", json={"text": "x", "external_id": "\u00fc" * 512})
    ).status_code == 202


async def test_full_disk_is_507_with_remedy(
    client: httpx2.AsyncClient, intake: FakeIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> Any:
        raise NoSpace("no space is left for uploads/default/x")

    monkeypatch.setattr(intake, "stage_upload", full)
    problem = assert_problem(
        await client.post("/v1/ingest", files={"file": ("a.txt", b"x")}), 507, "NO_SPACE"
    )
    assert "DISK_RESERVE" in problem["remedy"]


@pytest.mark.parametrize(
    "path",
    [
        "fusion/none",
        "none/default",
        "fusion/..%2F..%2Fetc%2Fpasswd",
        "..%2Ffusion/default",
        "Fusion/default",
        "fusion/default.yaml",
    ],
)
async def test_profile_outside_the_catalog_is_unknown(
    client: httpx2.AsyncClient, path: str
) -> None:
    response = await client.get(f"/v1/profiles/{path}")
    assert response.status_code == 404 and "etc/passwd:" not in response.text
    assert (await client.get("/v1/profiles/fusion/default")).json()["settings"]["rerank"]


async def test_refused_reload_names_file_and_key_and_is_audited() -> None:
    async def refuse() -> ReloadedConfig:
        raise InvalidRequest("odd.yaml: fusion.rrf_k", code="INVALID_PROFILE", remedy="Fix it.")

    audit = RecordingAuditLog()

    async def reload() -> ReloadedConfig:
        return ReloadedConfig(changed=["fusion/odd"], sha256="ab")

    for reload_profiles in (refuse, reload):
        services = make_services(reload_profiles=reload_profiles, audit=audit)
        async with make_client(services) as found:
            response = await found.post("/v1/reload-config")
        if reload_profiles is refuse:
            problem = assert_problem(response, 422, "INVALID_PROFILE")
            assert problem["detail"] == "odd.yaml: fusion.rrf_k"
    assert response.json() == {"changed": ["fusion/odd"], "sha256": "ab"}
    assert [(action, outcome) for _, action, _, outcome in audit.entries] == [
        ("config.reloaded", "INVALID_PROFILE"),
        ("config.reloaded", "done"),
    ]


async def test_large_responses_are_compressed_but_no_credential_stream_or_file(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A response of any size counts as large, and an observer can compare every length.
    monkeypatch.setattr(middleware, "MIN_COMPRESSED_BYTES", 1)
    for accepted, encoding in (
        ("gzip, deflate, br", "br"),
        ("gzip;q=1, br;q=0", "gzip"),
        ("gzip", "gzip"),
        ("*;q=0.5, gzip;q=0", "br"),
    ):
        document = await client.get("/openapi.json", headers={"Accept-Encoding": accepted})
        assert document.headers["content-encoding"] == encoding
        assert "Accept-Encoding" in document.headers["vary"]
        assert int(document.headers["content-length"]) < len(document.content) / 5
    refused = await client.get("/openapi.json", headers={"Accept-Encoding": "gzip;q=0, br;q=0"})
    assert "content-encoding" not in refused.headers
    plain = await client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == document.content
    at = f"/v1/documents/{DOCUMENT_ID}/file"
    link = (await client.get(at, params={"signed": True})).json()["url"]
    for response in (
        await client.post("/v1/keys", json={"name": "n" * 64}),
        await client.get(at, params={"signed": True}),
        await client.get(at),
        await client.get(link),
        await client.post("/v1/query", json={"query": "x", "stream": True}),
    ):
        assert "content-encoding" not in response.headers
    # Refusals of other operations are.
    assert (await client.get("/v1/nowhere")).headers["content-encoding"] == "br"
