"""Callers who send slowly, much, or from many connections: each attack is answered, and others are still served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.process import http_protocol
from api import middleware
from api.middleware import network_of
from tests.integration.test_http_server import answer, serving
from tests.unit.api_services import FakeIntake

HALF_JSON = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
LIST = b"GET /v1/documents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
UPLOAD = b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 90000\r\n\r\n"
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'


@asynccontextmanager
async def held(port: int, request: bytes, times: int) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(times)]
    for _, writer in opened:
        writer.write(request)
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def status_from(host: str, port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return int(line.split()[1])


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head, _, body = (await asyncio.wait_for(reader.read(), 20)).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_half_sent_bodies_of_one_address_leave_room_for_others() -> None:
    async with serving() as port, held(port, HALF_JSON, 260):
        async with asyncio.timeout(20):
            while await status_from("127.0.0.1", port, LIST) != 503:
                await asyncio.sleep(0.01)
        assert await status_from("127.0.0.2", port, LIST) == 200
        assert await status_from("127.0.0.1", port, LIST.replace(b"/v1/documents", b"/livez")) == 200


async def test_half_sent_body_times_out_and_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MEMORY_BODY_TIMEOUT_S", 0.5)
    async with serving() as port, held(port, HALF_JSON, 260) as opened:
        status, problem = await response(opened[0][0])
        assert (status, problem["code"]) == (408, "REQUEST_TIMEOUT")
        assert problem["remedy"]
        async with asyncio.timeout(20):
            while await status_from("127.0.0.1", port, LIST) != 200:
                await asyncio.sleep(0.05)


async def test_upload_below_the_minimum_rate_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "UPLOAD_GRACE_S", 0.3)
    intake = FakeIntake()
    async with serving(intake=intake) as port, held(port, UPLOAD + PART, 1) as ((reader, writer),):
        for _ in range(4):  # each byte would start a time-out of its own anew
            writer.write(b"x")
            await asyncio.sleep(0.06)
        status, problem = await response(reader)
    assert (status, problem["code"]) == (408, "REQUEST_TIMEOUT")
    assert "1024 bytes a second" in problem["detail"]
    assert intake.accepted == []


async def test_upload_above_the_minimum_rate_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "UPLOAD_GRACE_S", 0.3)
    body = PART + b"x" * 9_000 + b"\r\n--b--\r\n"
    async with serving() as port, held(port, UPLOAD.replace(b"90000", str(len(body)).encode()), 1) as ((reader, writer),):
        for start in range(0, len(body), 1_000):
            writer.write(body[start : start + 1_000])
            await asyncio.sleep(0.1)
        assert b" 202 " in await asyncio.wait_for(reader.readline(), 20)


@pytest.mark.parametrize(
    "headers",
    [
        b"X: " + b"x" * 70_000,
        b"\r\n".join(b"X-%d: y" % number for number in range(101)),
        b"\r\n".join(b"X-%d: %b" % (number, b"y" * 1_000) for number in range(80)),
    ],
    ids=["one long header", "many headers", "long in all"],
)
async def test_headers_over_the_limit_are_refused(headers: bytes) -> None:
    async with serving() as port:
        status, _, problem = await answer(port, b"GET /v1/documents HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n\r\n")
    assert (status, problem["code"]) == (431, "HEADERS_TOO_LARGE")


CHUNKED = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize(
    "start", [b"GET /v1/documents HTTP/1.1\r\nX: ", CHUNKED + b"0\r\nX: ", CHUNKED + b"2;x="], ids=["header", "trailer", "chunk extension"]
)
async def test_endless_header_is_refused_before_it_ends(start: bytes) -> None:
    async with serving() as port, held(port, start, 1) as ((reader, writer),):
        ended = asyncio.create_task(reader.read())
        sent = 0
        while not ended.done() and sent < 1_000_000:
            writer.write(b"x" * 10_000)
            sent += 10_000
            await asyncio.sleep(0.05)
        assert b" 431 " in (await asyncio.wait_for(ended, 20)).splitlines()[0]
    assert sent < 200_000


async def test_unfinished_headers_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.2)
    async with serving() as port, held(port, b"GET /v1/documents HTTP/1.1\r\nX: ", 1) as ((reader, _),):
        assert (await response(reader))[0] == 408


async def test_a_hundred_headers_are_served() -> None:
    headers = b"\r\n".join(b"X-%d: %b" % (number, b"y" * 500) for number in range(98))
    async with serving() as port:
        assert await status_from("127.0.0.1", port, b"GET /v1/documents HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n\r\n") == 200


def test_ipv6_subscriber_counts_as_one_address() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:127.0.0.1") == network_of("127.0.0.1") == "127.0.0.1"
