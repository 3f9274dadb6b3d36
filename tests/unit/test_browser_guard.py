"""Attacks of web pages: requests as a browser sends them for a page of another site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from anabranch.process.http_protocol import refusal
from anabranch.settings import ApiSettings
from api.app import create_app
from api.problems import SECURITY_HEADERS
from tests.api_access import BEARER, TOKEN, with_token
from tests.unit.api_services import DOCUMENT, FakeIntake, services

HERE = "http://localhost:8420"


def client_of(**replaced: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(create_app(with_token(services(**replaced))), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=HERE, headers=BEARER)


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of() as found:
        yield found


@pytest.mark.parametrize(
    "host",
    ["rebind.evil.example", "rebind.evil.example:8420", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8420@localhost", "localhost:8420@evil",
     "", "0.0.0.0", "192.0.2.7", "127.1", "2130706433", "0x7f.1", "[::1", "localhost:99999x", "local host", "xn--localhost", "[::ffff:192.0.2.7]"],
)  # fmt: skip
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/documents"), ("POST", "/v1/search"), ("GET", "/"), ("GET", "/docs"), ("GET", "/nowhere")])
async def test_request_for_a_foreign_host_is_refused(client: httpx2.AsyncClient, host: str, method: str, path: str) -> None:
    response = await client.request(method, path, headers={"Host": host})
    assert (response.status_code, response.json()["code"]) == (421, "UNKNOWN_HOST")
    assert "ANABRANCH_API__HOSTS" in response.json()["remedy"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8420", "localhost.", "127.0.0.1", "127.8.9.1:1", "[::1]:8420", "::1"])
async def test_loopback_names_and_addresses_are_own_hosts(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/documents", headers={"Host": host})).status_code == 200


async def test_hosts_are_named_by_settings() -> None:
    named = ApiSettings(host="192.0.2.7", hosts=("docs.example", "other.example:8443"), public_url="https://public.example/").own_hosts()
    async with client_of(hosts=named) as client:
        for host in ("192.0.2.7:8420", "docs.example", "DOCS.example:443", "other.example", "public.example"):
            assert (await client.get("/v1/documents", headers={"Host": host})).status_code == 200, host
        assert (await client.get("/v1/documents", headers={"Host": "sub.docs.example"})).status_code == 421
    assert ApiSettings(host="0.0.0.0").own_hosts() == ()


async def test_address_that_the_connection_came_to_is_an_own_host() -> None:
    app = create_app(with_token(services()))
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message.get("status"))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    for host, status in ((b"192.0.2.7:8420", 200), (b"192.0.2.8:8420", 421)):
        scope = {"type": "http", "method": "GET", "path": "/livez", "raw_path": b"/livez", "query_string": b"", "headers": [(b"host", host)],
                 "server": ("192.0.2.7", 8420), "scheme": "http", "root_path": ""}  # fmt: skip
        await app(scope, receive, send)
        assert told[0] == status
        told.clear()


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:9999"}, {"Origin": "https://localhost"}, {"Origin": "file://"},
     {"Origin": "http://localhost:8420.evil.example"}, {"Origin": "http://evil@localhost:8420"}, {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
)  # fmt: skip
@pytest.mark.parametrize("credential", [True, False])
async def test_unsafe_request_of_a_foreign_page_changes_nothing(headers: dict[str, str], credential: bool) -> None:
    intake = FakeIntake()
    async with client_of(intake=intake) as client:
        if not credential:
            del client.headers["Authorization"]
        form = await client.post("/v1/ingest", files={"file": ("a.md", b"planted")}, data={"external_id": "x"}, headers=headers)
        assert (form.status_code, form.json()["code"]) == (403, "FOREIGN_ORIGIN")
        for path in ("/v1/generations/g1/promote", "/v1/generations/rollback", "/v1/sources/reset?name=x", f"/v1/replays/{DOCUMENT}/cancel"):
            assert (await client.post(path, headers=headers)).status_code == 403, path
        assert (await client.delete(f"/v1/documents/{DOCUMENT}", headers=headers)).status_code == 403
    assert not (intake.accepted or intake.stored or intake.withdrawn)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": HERE}, {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": "https://localhost", "Host": "localhost"},
     {"Origin": "https://localhost", "Host": "localhost:443"}, {"Origin": "http://LOCALHOST", "Host": "localhost"}],
)  # fmt: skip
async def test_unsafe_request_of_an_own_page_or_program_is_admitted(client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    assert (await client.post("/v1/ingest", json={"text": "hello"}, headers=headers)).status_code == 202


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [("GET", "/livez", {}), ("GET", "/docs", {}), ("GET", "/docs/start.js", {}), ("GET", "/", {}), ("GET", "/nowhere", {}), ("POST", "/v1/query", {}),
     ("GET", "/v1/documents", {"Authorization": "Bearer wrong"}), ("GET", "/v1/documents", {"Host": "evil.example"}), ("PUT", "/v1/documents", {}),
     ("GET", f"/v1/documents/{DOCUMENT}/file", {}), ("POST", "/v1/ingest", {"Content-Length": str(10**13)}), ("GET", "/v1/runs", {})],
)  # fmt: skip
async def test_every_answer_carries_the_security_headers(client: httpx2.AsyncClient, method: str, path: str, headers: dict[str, str]) -> None:
    response = await client.request(method, path, headers=headers)
    assert_protected(response.headers)
    assert ("sandbox" in response.headers["content-security-policy"]) == path.endswith("/file")


async def test_event_stream_carries_the_security_headers(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/query", json={"query": "x", "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert_protected(response.headers)


async def test_answer_to_a_bug_carries_the_security_headers() -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("a bug")

    async with client_of(config_schema=broken) as client:
        response = await client.get("/v1/config/schema")
    assert response.status_code == 500
    assert_protected(response.headers)


def test_refusal_of_malformed_http_carries_the_security_headers() -> None:
    lines = refusal(400, "BAD_REQUEST", "no HTTP", "", "1").partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    assert_protected(httpx2.Headers([tuple(line.split(": ", 1)) for line in lines]))


def assert_protected(headers: httpx2.Headers) -> None:
    for name, value in SECURITY_HEADERS.items():
        if name != "Content-Security-Policy":
            assert headers.get_list(name) == [value], name
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_documentation_page_needs_no_inline_script(client: httpx2.AsyncClient) -> None:
    page = await client.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "<script>" not in page.text


async def test_signed_link_is_never_built_from_the_host(client: httpx2.AsyncClient) -> None:
    path = f"/v1/documents/{DOCUMENT}/file?signed=true"
    relative = (await client.get(path, headers={"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"})).json()["url"]
    assert relative.startswith("/v1/") and "evil" not in relative
    async with client_of(public_url="https://docs.example") as public:
        assert (await public.get(path)).json()["url"].startswith("https://docs.example/v1/")


async def test_token_is_never_in_an_answer(client: httpx2.AsyncClient) -> None:
    for path in ("/health", "/docs", "/v1/config/schema", "/nowhere"):
        response = await client.get(path)
        assert TOKEN not in response.text + str(response.headers)
