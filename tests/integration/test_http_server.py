"""Behavior that only a real connection shows: disconnecting clients and malformed HTTP."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.process.api_process import HttpProtocol, UvicornServer
from schemas.event_feed import FeedMessage
from tests.support.eventually import eventually
from tests.support.http_server import (
    fetch_answer,
    make_config,
    open_small_buffer_socket,
    run_server,
)
from tests.unit.api_fakes import FakeIntake, MemoryFeed


@pytest.mark.parametrize(
    "header", [b"Content-Length: -5", b"Content-Length: many", b"Bad\x00Name: x"]
)
async def test_invalid_http_gets_problem_with_remedy(header: bytes) -> None:
    async with run_server() as port:
        status, headers, problem = await fetch_answer(
            port, b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n"
        )
    assert (status, headers["content-type"], problem["code"]) == (
        400,
        "application/problem+json",
        "BAD_REQUEST",
    )
    assert problem["detail"]
    assert "Content-Length" in problem["remedy"]
    assert problem["request_id"] == headers["x-request-id"]


async def test_server_stops_despite_clients_not_reading_streams() -> None:
    feed = MemoryFeed(
        [FeedMessage(event="document.chunked.v1", data={"text": "x" * 64_000}, cursor="1.1")] * 100
    )
    server = UvicornServer(make_config(event_feed=feed))
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    opened = [await asyncio.open_connection(sock=open_small_buffer_socket(port)) for _ in range(6)]
    for _, writer in opened:
        writer.write(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reading = [asyncio.create_task(reader.read()) for reader, _ in opened[:3]]
    await eventually(
        lambda: (
            sum(
                isinstance(one, HttpProtocol) and one.flow.write_paused
                for one in server.server_state.connections
            )
            >= 3
        )
    )
    feed.close_streams()
    server.should_exit = True
    async with asyncio.timeout(60):
        await task
        read = await asyncio.gather(*reading)
    assert all(b"event: bye" in received[-200:] for received in read), (
        "a client that reads receives the whole stream"
    )
    for _, writer in opened:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_client_disconnect_during_upload_is_not_an_error() -> None:
    intake, begun = FakeIntake(), asyncio.Event()

    class Waiting(FakeIntake):
        async def stage_upload(self, *given: Any) -> Any:
            begun.set()
            return await intake.stage_upload(*given)

    structlog.reset_defaults()
    with capture_logs() as lines:
        async with run_server(ingest=Waiting()) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            head = (
                b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 9000\r\n\r\n"
            )
            writer.write(
                head
                + (
                    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
                    b"half of"
                )
            )
            await writer.drain()
            await asyncio.wait_for(begun.wait(), 60)
            writer.close()
            await writer.wait_closed()
            await eventually(lambda: bool(lines))
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("info", "client_disconnected")
    ]
    assert intake.accepted == []
