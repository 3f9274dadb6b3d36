from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from anabranch.cli.http_client import ApiClient
from schemas.api_keys import Identity
from schemas.errors import PermanentError, TransientError

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
