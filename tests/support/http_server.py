"""HTTP servers of tests, and clients that hang."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message

from anabranch.process.api_process import HttpProtocol
from api.app import create_app
from tests.support.eventually import eventually
from tests.unit.api_fakes import make_services


def make_config(**replaced: Any) -> uvicorn.Config:
    """Configure a server on any port, with fakes of services as `make_services` has them."""
    return uvicorn.Config(
        create_app(make_services(**replaced)),
        port=0,
        http=HttpProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
    )


@asynccontextmanager
async def run_server(**replaced: Any) -> AsyncIterator[int]:
    server = uvicorn.Server(make_config(**replaced))
    task = asyncio.create_task(server._serve())
    try:
        await eventually(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


def open_small_buffer_socket(port: int) -> socket.socket:
    """Open a socket with a small receive buffer."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    return made


async def fetch_answer(port: int, request: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *lines = head.decode().split("\r\n")
    return (
        int(status.split()[1]),
        {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)},
        json.loads(body),
    )


@asynccontextmanager
async def send_and_disconnect(
    app: ASGIApp, path: str, body: dict[str, Any], credential: str
) -> AsyncIterator[Callable[[], None]]:
    """Send a POST request; the yielded function ends its connection."""
    messages = asyncio.Queue[Message]()
    request = {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
    messages.put_nowait(request)
    headers = {
        "host": "localhost",
        "authorization": f"Bearer {credential}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def send(message: Message) -> None:
        """Nobody reads the response."""

    serving = asyncio.create_task(app(scope, messages.get, send))  # type: ignore[arg-type]
    try:
        yield lambda: messages.put_nowait({"type": "http.disconnect"})
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
