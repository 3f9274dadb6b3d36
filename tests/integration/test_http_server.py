"""What only a real connection shows: callers who leave, and bytes that are no HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog
import uvicorn
from structlog.testing import capture_logs

from anabranch.process.api_process import Server
from anabranch.process.http_protocol import Protocol
from api.app import create_app
from api.feeds import Told
from tests.unit.api_services import FakeIntake, MemoryFeed, services


@asynccontextmanager
async def serving(**replaced: Any) -> AsyncIterator[int]:
    server = uvicorn.Server(uvicorn.Config(create_app(services(**replaced)), port=0, http=Protocol, lifespan="off", log_config=None, access_log=False))
    task = asyncio.create_task(server._serve())
    try:
        await until(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


def caller(port: int) -> socket.socket:
    """One that takes in little before it reads."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    return made


async def answer(port: int, request: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}, json.loads(body)


@pytest.mark.parametrize("header", [b"Content-Length: -5", b"Content-Length: many", b"Bad\x00Name: x"])
async def test_what_is_no_http_is_a_problem_with_a_way_out(header: bytes) -> None:
    async with serving() as port:
        status, headers, problem = await answer(port, b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
    assert (status, headers["content-type"], problem["code"]) == (400, "application/problem+json", "BAD_REQUEST")
    assert problem["detail"]
    assert "Content-Length" in problem["remedy"]
    assert problem["request_id"] == headers["x-request-id"]


async def test_callers_who_do_not_read_their_stream_do_not_keep_the_server_from_stopping() -> None:
    feed = MemoryFeed([Told(event="document.chunked.v1", data={"text": "x" * 64_000}, cursor="1.1")] * 100)
    config = uvicorn.Config(create_app(services(feed=feed)), port=0, http=Protocol, lifespan="off", log_config=None, access_log=False)
    server = Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    opened = [await asyncio.open_connection(sock=caller(port)) for _ in range(6)]
    for _, writer in opened:
        writer.write(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reading = [asyncio.create_task(reader.read()) for reader, _ in opened[:3]]
    await until(lambda: sum(isinstance(one, Protocol) and one.flow.write_paused for one in server.server_state.connections) >= 3)
    feed.stop()
    server.should_exit = True
    async with asyncio.timeout(60):
        await task
        read = await asyncio.gather(*reading)
    assert all(b"event: bye" in told[-200:] for told in read), "who reads is told all to the end"
    for _, writer in opened:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_caller_who_leaves_in_the_middle_of_an_upload_is_no_error() -> None:
    intake, begun = FakeIntake(), asyncio.Event()

    class Waiting(FakeIntake):
        async def store(self, *given: Any) -> Any:
            begun.set()
            return await intake.store(*given)

    structlog.reset_defaults()
    with capture_logs() as lines:
        async with serving(intake=Waiting()) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            head = b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 9000\r\n\r\n"
            writer.write(head + b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhalf of')
            await writer.drain()
            await asyncio.wait_for(begun.wait(), 20)
            writer.close()
            await writer.wait_closed()
            await until(lambda: bool(lines))
    assert [(line["log_level"], line["event"]) for line in lines] == [("info", "the client went away")]
    assert intake.accepted == []
