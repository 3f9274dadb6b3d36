"""Attacks of web pages: requests as a browser sends them for a page of another site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from anabranch.config.settings import ApiSettings
from anabranch.process.api_process import format_problem_response
from api.app import create_app
from api.problems import SECURITY_HEADERS
from tests.support.api_client import BEARER, TOKEN, add_local_token
from tests.unit.api_fakes import DOCUMENT_ID, FakeIntake, make_services

BASE_URL = "http://localhost:8420"


def make_client(**replaced: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(
        create_app(add_local_token(make_services(**replaced))), raise_app_exceptions=False
    )
    return httpx2.AsyncClient(transport=transport, base_url=BASE_URL, headers=BEARER)


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with make_client() as found:
        yield found


@pytest.mark.parametrize(
    "host",
    ["rebind.evil.example", "rebind.evil.example:8420", "localhost.evil.example",
     "127.0.0.1.evil.example", "evil.example:8420@localhost", "localhost:8420@evil",
     "", "0.0.0.0", "192.0.2.7", "127.1", "2130706433",
     "0x7f.1", "[::1", "localhost:99999x", "local host", "xn--localhost", "[::ffff:192.0.2.7]"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/documents"),
        ("POST", "/v1/search"),
        ("GET", "/"),
        ("GET", "/docs"),
        ("GET", "/nowhere"),
    ],
)
async def test_unknown_host_header_is_refused(
    client: httpx2.AsyncClient, host: str, method: str, path: str
) -> None:
    response = await client.request(method, path, headers={"Host": host})
    assert (response.status_code, response.json()["code"]) == (421, "UNKNOWN_HOST")
    assert "ANABRANCH_API__HOSTS" in response.json()["remedy"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8420", "localhost.", "127.0.0.1", "127.8.9.1:1", "[::1]:8420", "::1"],
)
async def test_loopback_hosts_are_accepted(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/documents", headers={"Host": host})).status_code == 200


async def test_configured_hosts_are_accepted() -> None:
    named = ApiSettings(
        host="192.0.2.7",
        hosts=("docs.example", "other.example:8443"),
        public_url="https://public.example/",
    ).list_allowed_hosts()
    async with make_client(hostnames=named) as client:
        for host in (
            "192.0.2.7:8420",
            "docs.example",
            "DOCS.example:443",
            "other.example",
            "public.example",
        ):
            assert (await client.get("/v1/documents", headers={"Host": host})).status_code == 200, (
                host
            )
        assert (
            await client.get("/v1/documents", headers={"Host": "sub.docs.example"})
        ).status_code == 421
    assert ApiSettings(host="0.0.0.0").list_allowed_hosts() == ()


async def test_connection_address_is_accepted_as_host() -> None:
    app = create_app(add_local_token(make_services()))
    statuses: list[Any] = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    for host, status in ((b"192.0.2.7:8420", 200), (b"192.0.2.8:8420", 421)):
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/livez",
            "raw_path": b"/livez",
            "query_string": b"",
            "headers": [(b"host", host)],
            "server": ("192.0.2.7", 8420),
            "scheme": "http",
            "root_path": "",
        }
        await app(scope, receive, send)
        assert statuses[0] == status
        statuses.clear()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "https://localhost"},
        {"Origin": "file://"},
        {"Origin": "http://localhost:8420.evil.example"},
        {"Origin": "http://evil@localhost:8420"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("credential", [True, False])
async def test_cross_origin_write_is_refused_without_effect(
    headers: dict[str, str], credential: bool
) -> None:
    intake = FakeIntake()
    async with make_client(ingest=intake) as client:
        if not credential:
            del client.headers["Authorization"]
        form = await client.post(
            "/v1/ingest",
            files={"file": ("a.md", b"planted")},
            data={"external_id": "x"},
            headers=headers,
        )
        assert (form.status_code, form.json()["code"]) == (403, "FOREIGN_ORIGIN")
        for path in (
            "/v1/generations/g1/promote",
            "/v1/generations/rollback",
            "/v1/sources/reset?name=x",
            f"/v1/replays/{DOCUMENT_ID}/cancel",
        ):
            assert (await client.post(path, headers=headers)).status_code == 403, path
        assert (
            await client.delete(f"/v1/documents/{DOCUMENT_ID}", headers=headers)
        ).status_code == 403
    assert not (intake.accepted or intake.stored or intake.withdrawn)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": BASE_URL},
        {"Origin": BASE_URL, "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://localhost", "Host": "localhost"},
        {"Origin": "https://localhost", "Host": "localhost:443"},
        {"Origin": "http://LOCALHOST", "Host": "localhost"},
    ],
)
async def test_same_origin_and_non_browser_writes_are_accepted(
    client: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    assert (
        await client.post("/v1/ingest", json={"text": "hello"}, headers=headers)
    ).status_code == 202


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/livez", {}),
        ("GET", "/docs", {}),
        ("GET", "/docs/start.js", {}),
        ("GET", "/", {}),
        ("GET", "/nowhere", {}),
        ("POST", "/v1/query", {}),
        ("GET", "/v1/documents", {"Authorization": "Bearer wrong"}),
        ("GET", "/v1/documents", {"Host": "evil.example"}),
        ("PUT", "/v1/documents", {}),
        ("GET", f"/v1/documents/{DOCUMENT_ID}/file", {}),
        ("POST", "/v1/ingest", {"Content-Length": str(10**13)}),
        ("GET", "/v1/runs", {}),
    ],
)
async def test_every_response_has_security_headers(
    client: httpx2.AsyncClient, method: str, path: str, headers: dict[str, str]
) -> None:
    response = await client.request(method, path, headers=headers)
    assert_security_headers(response.headers)
    assert ("sandbox" in response.headers["content-security-policy"]) == path.endswith("/file")


async def test_event_stream_has_security_headers(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/query", json={"query": "x", "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert_security_headers(response.headers)


async def test_internal_error_response_has_security_headers() -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("a bug")

    async with make_client(get_config_schema=broken) as client:
        response = await client.get("/v1/config/schema")
    assert response.status_code == 500
    assert_security_headers(response.headers)


def test_malformed_http_refusal_has_security_headers() -> None:
    lines = (
        format_problem_response(400, "BAD_REQUEST", "no HTTP", "", "1")
        .partition(b"\r\n\r\n")[0]
        .decode()
        .split("\r\n")[1:]
    )
    assert_security_headers(httpx2.Headers([tuple(line.split(": ", 1)) for line in lines]))


def assert_security_headers(headers: httpx2.Headers) -> None:
    for name, value in SECURITY_HEADERS.items():
        if name != "Content-Security-Policy":
            assert headers.get_list(name) == [value], name
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_docs_page_needs_no_inline_script(client: httpx2.AsyncClient) -> None:
    page = await client.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "<script>" not in page.text


async def test_signed_link_ignores_host_headers(client: httpx2.AsyncClient) -> None:
    path = f"/v1/documents/{DOCUMENT_ID}/file?signed=true"
    link = (
        await client.get(
            path, headers={"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
        )
    ).json()["url"]
    # Complete, so that it can be passed on as it is.
    assert link.startswith(f"{client.base_url}/v1/signed/") and "evil" not in link
    assert (await client.get(link)).status_code == 200
    async with make_client(public_url="https://docs.example") as public:
        assert (await public.get(path)).json()["url"].startswith("https://docs.example/v1/")


async def test_token_never_appears_in_responses(client: httpx2.AsyncClient) -> None:
    for path in ("/health", "/docs", "/v1/config/schema", "/nowhere"):
        response = await client.get(path)
        assert TOKEN not in response.text + str(response.headers)
