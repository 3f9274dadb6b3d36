"""Servers that redirect, flood, send compressed bombs or never end their reply."""

from __future__ import annotations

import asyncio
import functools
import gzip
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.identity import tokens
from anabranch.identity.tokens import fetch_jwks
from engines.blobs import open_blobs
from engines.embed.openai import OpenAIEmbedder
from engines.http_fetcher import HttpFetcher
from engines.server_settings import ServerKind, ServerRetryPolicy, ServerSettings
from schemas.errors import AnabranchError, EngineUnavailable, LimitExceeded, UnreadableDocument

MEGABYTE = b"a" * 2**20
RETRIES = ServerRetryPolicy(attempts=1, first_wait_s=0)


@asynccontextmanager
async def serve(head: str, body: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve one reply on a loopback port; yields the address and the requests."""
    requests: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            writer.write(f"HTTP/1.1 {head}\r\nconnection: close\r\n\r\n".encode())
            async for piece in body:
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}", requests
    finally:
        server.close()


async def send(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def flood() -> AsyncIterator[bytes]:
    while True:
        yield MEGABYTE


async def drip() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.2)


@functools.cache
def pack_bomb(wbits: int) -> bytes:
    packer = zlib.compressobj(9, wbits=wbits)
    return b"".join(packer.compress(MEGABYTE) for _ in range(512))


def bomb(wbits: int) -> AsyncIterator[bytes]:
    return send(pack_bomb(wbits))


def count_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def embed(url: str, *, kind: ServerKind = "openai", timeout_s: float = 20) -> None:
    settings = ServerSettings(
        url, "m", "key", kind=kind, timeout_s=timeout_s, api_version="2025-01-01"
    )
    engine = OpenAIEmbedder(settings, dimension=8, retry_policy=RETRIES)
    try:
        await engine.embed(["a private text"])
    finally:
        await engine.close()


@pytest.mark.parametrize("kind", ["openai", "azure", "vllm"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_model_client_follows_no_redirect(status: int, kind: ServerKind) -> None:
    async with serve("200 OK", send(b'{"data":[]}')) as (inner, stolen):
        head = f"{status} Moved\r\nlocation: {inner}/internal"
        async with serve(head, send()) as (url, _):
            with pytest.raises(EngineUnavailable) as caught:
                await embed(url, kind=kind)
    assert caught.value.code == "ENGINE_NOT_FOUND" and str(status) in caught.value.detail
    assert not stolen


HOSTILE_BODIES: dict[str, tuple[str, Callable[[], AsyncIterator[bytes]]]] = {
    "flood": ("", flood),
    "gzip": ("\r\ncontent-encoding: gzip", lambda: bomb(31)),
    "deflate": ("\r\ncontent-encoding: deflate", lambda: bomb(15)),
    "raw deflate": ("\r\ncontent-encoding: deflate", lambda: bomb(-15)),
    "unknown": ("\r\ncontent-encoding: compress", flood),
    "twice": ("\r\ncontent-encoding: gzip, gzip", flood),
    "no gzip": ("\r\ncontent-encoding: gzip", flood),
}


@pytest.mark.parametrize("name", HOSTILE_BODIES)
async def test_large_replies_are_refused_in_bounded_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine takes its time; the size has to end the reply.
    monkeypatch.setattr(tokens, "TIMEOUT_S", 120.0)
    before = count_memory()
    encoding, make_body = HOSTILE_BODIES[name]
    for call in (embed, fetch_jwks):
        async with serve(f"200 OK{encoding}", make_body()) as (url, _):
            with pytest.raises(AnabranchError) as caught:
                await call(url)
        assert "cannot be read" in caught.value.detail
    assert count_memory() - before < 300 * 2**20


@pytest.mark.parametrize("name", ["flood", "gzip", "deflate", "raw deflate"])
async def test_large_downloads_are_refused_in_bounded_memory(name: str, tmp_path: Path) -> None:
    before = count_memory()
    encoding, make_body = HOSTILE_BODIES[name]
    async with serve(f"200 OK{encoding}", make_body()) as (url, _):
        with pytest.raises((LimitExceeded, UnreadableDocument)):
            await make_fetcher(tmp_path, url).fetch(f"{url}/a", "u/")
    assert count_memory() - before < 100 * 2**20


async def test_reply_of_a_byte_at_a_time_ends_at_the_timeout() -> None:
    async with serve("200 OK", drip()) as (url, _):
        started = time.monotonic()
        with pytest.raises(EngineUnavailable) as caught:
            await embed(url, timeout_s=1)
        assert time.monotonic() - started < 30 and "did not answer in 1 s" in caught.value.detail


def make_fetcher(folder: Path, url: str) -> HttpFetcher:
    return HttpFetcher(
        open_blobs(folder.as_uri()),
        allowed_hosts=frozenset({url.removeprefix("http://")}),
        max_bytes=8 * 2**20,
        timeout_s=30,
    )


TEXT = b"The bridge at Orsk opened in 1931.\n" * 4_000


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("identity", TEXT),
        ("gzip", gzip.compress(TEXT)),
        ("x-gzip", gzip.compress(TEXT)),
        ("GZIP", gzip.compress(TEXT[:50_000]) + gzip.compress(TEXT[50_000:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)[2:-4]),
    ],
)
async def test_document_of_an_always_compressing_server_is_read(
    encoding: str, body: bytes, tmp_path: Path
) -> None:
    pieces = [body[start : start + 100] for start in range(0, len(body), 100)]
    async with serve(f"200 OK\r\ncontent-encoding: {encoding}", send(*pieces)) as (url, _):
        fetcher = make_fetcher(tmp_path, url)
        fetched = await fetcher.fetch(f"{url}/a.txt", "u/")
    async with fetcher._blobs.open_local(fetched.blob.key) as path:
        assert path.read_bytes() == TEXT
