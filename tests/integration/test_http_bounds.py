"""Slow, large and numerous requests are bounded while other clients are served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.process import api_process
from api import middleware
from api.middleware import normalize_address
from tests.support.eventually import eventually
from tests.support.http_server import fetch_answer, run_server
from tests.unit.api_fakes import FakeIntake

PARTIAL_JSON_REQUEST = (
    b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100000\r\n\r\n{"
)
LIST_REQUEST = b"GET /v1/documents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
UPLOAD_HEADERS = (
    b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 90000\r\n\r\n"
)
UPLOAD_PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'


@asynccontextmanager
async def open_connections(
    port: int, request: bytes, times: int
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(times)]
    for _, writer in opened:
        writer.write(request)
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def fetch_status(host: str, port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), 60)
    writer.close()
    return int(line.split()[1])


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_partial_bodies_of_one_address_do_not_block_others() -> None:
    async with run_server() as port, open_connections(port, PARTIAL_JSON_REQUEST, 260):
        await eventually(
            lambda: fetch_status("127.0.0.1", port, LIST_REQUEST), lambda status: status == 503
        )
        assert await fetch_status("127.0.0.2", port, LIST_REQUEST) == 200
        assert (
            await fetch_status("127.0.0.1", port, LIST_REQUEST.replace(b"/v1/documents", b"/livez"))
            == 200
        )


async def test_partial_body_times_out_and_frees_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MEMORY_BODY_TIMEOUT_S", 0.5)
    async with run_server() as port, open_connections(port, PARTIAL_JSON_REQUEST, 260) as opened:
        status, problem = await read_response(opened[0][0])
        assert (status, problem["code"]) == (408, "REQUEST_TIMEOUT")
        assert problem["remedy"]
        await eventually(
            lambda: fetch_status("127.0.0.1", port, LIST_REQUEST), lambda status: status == 200
        )


async def test_upload_below_minimum_rate_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "UPLOAD_GRACE_S", 0.3)
    intake = FakeIntake()
    async with (
        run_server(ingest=intake) as port,
        open_connections(port, UPLOAD_HEADERS + UPLOAD_PART, 1) as ((reader, writer),),
    ):
        for _ in range(4):  # each byte would start a time-out of its own anew
            writer.write(b"x")
            await asyncio.sleep(0.06)
        status, problem = await read_response(reader)
    assert (status, problem["code"]) == (408, "REQUEST_TIMEOUT")
    assert "1024 bytes/s" in problem["detail"]
    assert intake.accepted == []


async def test_slow_upload_above_minimum_rate_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "UPLOAD_GRACE_S", 0.6)
    body = UPLOAD_PART + b"x" * 9_000 + b"\r\n--b--\r\n"
    async with (
        run_server() as port,
        open_connections(port, UPLOAD_HEADERS.replace(b"90000", str(len(body)).encode()), 1) as (
            (reader, writer),
        ),
    ):
        for start in range(0, len(body), 1_000):
            writer.write(body[start : start + 1_000])
            await asyncio.sleep(0.1)
        assert b" 202 " in await asyncio.wait_for(reader.readline(), 60)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (b"X: " + b"x" * 70_000, (431, "HEADERS_TOO_LARGE")),
        (b"\r\n".join(b"X-%d: y" % n for n in range(101)), (431, "HEADERS_TOO_LARGE")),
        (
            b"\r\n".join(b"X-%d: %b" % (n, b"y" * 1_000) for n in range(80)),
            (431, "HEADERS_TOO_LARGE"),
        ),
        (
            b"\r\n".join(b"X-%d: %b" % (n, b"y" * 500) for n in range(97))
            + b"\r\nConnection: close",
            (200, None),
        ),
    ],
    ids=["one long header", "many headers", "long in all", "hundred headers"],
)
async def test_only_headers_over_the_limit_are_rejected(
    headers: bytes, expected: tuple[int, str | None]
) -> None:
    async with run_server() as port:
        status, _, body = await fetch_answer(
            port, b"GET /v1/documents HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n\r\n"
        )
    assert (status, body.get("code")) == expected


CHUNKED_HEADERS = (
    b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
)


@pytest.mark.parametrize(
    "start",
    [
        b"GET /v1/documents HTTP/1.1\r\nX: ",
        CHUNKED_HEADERS + b"0\r\nX: ",
        CHUNKED_HEADERS + b"2;x=",
    ],
    ids=["header", "trailer", "chunk extension"],
)
async def test_endless_header_is_rejected_early(start: bytes) -> None:
    async with run_server() as port, open_connections(port, start, 1) as ((reader, writer),):
        ended = asyncio.create_task(reader.read())
        sent = 0
        while not ended.done() and sent < 1_000_000:
            writer.write(b"x" * 10_000)
            sent += 10_000
            await asyncio.sleep(0.05)
        assert b" 431 " in (await asyncio.wait_for(ended, 60)).splitlines()[0]
    assert sent < 200_000


async def test_unfinished_headers_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_process, "HEAD_TIMEOUT_S", 0.2)
    async with (
        run_server() as port,
        open_connections(port, b"GET /v1/documents HTTP/1.1\r\nX: ", 1) as ((reader, _),),
    ):
        assert (await read_response(reader))[0] == 408


def test_ipv6_subscriber_counts_as_one_address() -> None:
    assert (
        normalize_address("2001:db8:1:2::1")
        == normalize_address("2001:db8:1:2:ffff::9")
        != normalize_address("2001:db8:1:3::1")
    )
    assert normalize_address("::ffff:127.0.0.1") == normalize_address("127.0.0.1") == "127.0.0.1"
