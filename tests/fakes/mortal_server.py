"""The server that a command speaks to, without a socket: it answers so many times, and is gone then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from anabranch.client import ApiClient


class Dying:
    """Answers each path with what is given for it, so many times, and is gone then. Of a list each answer is given once, and the last one from then on."""

    def __init__(self, answers: dict[str, Any], lives: int) -> None:
        self.answers, self.lives = answers, lives
        self.asked: Asked = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if not self.lives:
            raise httpx2.ConnectError("all connection attempts failed")
        self.lives -= 1
        self.asked.append((request.url.path, request.content))
        answer = self.answers[request.url.path]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return httpx2.Response(202, json=answer)

    @asynccontextmanager
    async def client(self, *_: object, **__: object) -> AsyncIterator[ApiClient]:
        client = ApiClient("http://server", passing=True)
        client.http = httpx2.AsyncClient(transport=httpx2.MockTransport(self), base_url="http://server")
        async with client:
            yield client


Asked = list[tuple[str, bytes]]
Served = Callable[[dict[str, Any], int], Asked]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Gives the paths and bodies that will be asked with."""

    def serve(answers: dict[str, Any], lives: int) -> Asked:
        server = Dying(answers, lives)
        for name in ("api_client", "beginning_client"):
            monkeypatch.setattr(f"anabranch.cli.serving.{name}", server.client)
        return server.asked

    return serve
