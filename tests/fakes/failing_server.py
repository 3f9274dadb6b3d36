"""Servers of tests, also those that fail."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import pytest
import uvicorn

from anabranch.cli.http_client import ApiClient


class FailingServer:
    """Answers each path, with its query if that is given too, so many times, and is gone then. Of a
    list each answer is given once, and the last one from then on.
    """

    def __init__(self, answers: dict[str, Any], lives: int) -> None:
        self.answers, self.answers_left = answers, lives
        self.requests: RecordedRequests = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if not self.answers_left:
            raise httpx2.ConnectError("all connection attempts failed")
        self.answers_left -= 1
        self.requests.append((request.url.path, request.content))
        target = f"{request.url.path}?{request.url.query.decode()}"
        answer = self.answers[target if target in self.answers else request.url.path]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return httpx2.Response(202, json=answer)

    @asynccontextmanager
    async def client(self, *_: object, **__: object) -> AsyncIterator[ApiClient]:
        client = ApiClient("http://server", is_ephemeral=True)
        client.http = httpx2.AsyncClient(
            transport=httpx2.MockTransport(self), base_url="http://server"
        )
        async with client:
            yield client


RecordedRequests = list[tuple[str, bytes]]
ServeAnswers = Callable[[dict[str, Any], int], RecordedRequests]


@pytest.fixture
def serve_answers(monkeypatch: pytest.MonkeyPatch) -> ServeAnswers:
    """Serve these answers to the CLI, and return the paths and bodies of its requests."""

    def serve(answers: dict[str, Any], lives: int) -> RecordedRequests:
        server = FailingServer(answers, lives)
        for name in ("open_client", "open_or_initialize_client", "open_lasting_client"):
            monkeypatch.setattr(f"anabranch.cli.server_connection.{name}", server.client)
        return server.requests

    return serve


@contextmanager
def run_asgi_app(app: Any) -> Iterator[str]:
    """Yield `http://127.0.0.1:PORT` once it answers; join the thread at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app, log_level="error", ws="none", lifespan="off", timeout_graceful_shutdown=1
        )
    )
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])),
        name="fake-server",
        daemon=True,
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
