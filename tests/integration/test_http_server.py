"""What only a real connection shows: callers who leave, and bytes that are no HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import uvicorn
from structlog.testing import capture_logs

from anabranch.process.http_protocol import Protocol
from api.app import create_app
from tests.unit.api_services import FakeIntake, services


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
        status, headers, problem = await answer(port, b"POST /v1/query HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n\r\n")
    assert (status, headers["content-type"], problem["code"]) == (400, "application/problem+json", "BAD_REQUEST")
    assert problem["detail"]
    assert "Content-Length" in problem["remedy"]
    assert problem["request_id"] == headers["x-request-id"]


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
            head = b"POST /v1/ingest HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 9000\r\n\r\n"
            writer.write(head + b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhalf of')
            await writer.drain()
            await asyncio.wait_for(begun.wait(), 20)
            writer.close()
            await writer.wait_closed()
            await until(lambda: bool(lines))
    assert [(line["log_level"], line["event"]) for line in lines] == [("info", "the client went away")]
    assert intake.accepted == []
