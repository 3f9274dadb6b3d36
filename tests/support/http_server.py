"""Run a real HTTP server in this process and talk to it byte by byte."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from anabranch.process.api_process import HttpProtocol
from api.app import create_app
from tests.support.eventually import eventually
from tests.unit.api_fakes import make_services


@asynccontextmanager
async def run_server(**replaced: Any) -> AsyncIterator[int]:
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(make_services(**replaced)),
            port=0,
            http=HttpProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
        )
    )
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
