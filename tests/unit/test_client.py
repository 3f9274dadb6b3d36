from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from anabranch.client import ApiClient
from schemas.errors import TransientError

Handler = Callable[[httpx2.Request], httpx2.Response]


def client(handler: Handler) -> ApiClient:
    found = ApiClient("http://server")
    found.http = httpx2.AsyncClient(transport=httpx2.MockTransport(handler), base_url="http://server")
    return found


class ClosesTheFirst:
    """As a server that has just ended a connection which is used again."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.method)
        if len(self.asked) == 1:
            raise httpx2.ReadError("")
        return httpx2.Response(200, json={"state": "running"})


async def test_what_only_asks_is_sent_again_where_its_connection_was_just_closed() -> None:
    server = ClosesTheFirst()
    async with client(server) as http:
        assert await http.get("/v1/ingest/status/1") == {"state": "running"}
    assert server.asked == ["GET", "GET"]


async def test_what_does_something_is_sent_once_and_its_failure_has_a_name() -> None:
    server = ClosesTheFirst()
    async with client(server) as http:
        with pytest.raises(TransientError, match="http://server does not answer: ReadError"):
            await http.post("/v1/ingest", {"text": "x"})
    assert server.asked == ["POST"]


async def test_a_server_that_is_not_there_is_not_asked_twice() -> None:
    asked: list[str] = []

    def nobody(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        raise httpx2.ConnectError("refused")

    async with client(nobody) as http:
        with pytest.raises(TransientError, match="refused"):
            await http.get("/health")
    assert asked == ["GET"]
