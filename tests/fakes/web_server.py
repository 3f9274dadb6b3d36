"""A small website: files, redirects, errors, slow and endless answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse

from tests.fakes.failing_server import run_asgi_app


@contextmanager
def fake_web() -> Iterator[str]:
    with run_asgi_app(_app()) as address:
        yield address


def _app() -> FastAPI:
    app = FastAPI()

    @app.get("/files/{name}")
    async def file(name: str) -> Response:
        return Response(b"%PDF-1.7 fake", media_type="application/pdf; charset=binary")

    @app.get("/tides.html")
    async def tides() -> Response:
        return Response("<h1>Tides</h1><p>High water comes at noon.</p>", media_type="text/html")

    @app.get("/named")
    async def named() -> Response:
        return Response(
            b"data",
            headers={"content-disposition": "attachment; filename*=UTF-8''relat%C3%B3rio.pdf"},
        )

    @app.get("/odd")
    async def odd(request: Request) -> Response:
        """Answer with the headers that the query asks for."""
        return Response(b"data", headers=dict(request.query_params.items()))

    @app.get("/tagged")
    async def tagged(request: Request) -> Response:
        tag = request.query_params["tag"]
        sent = request.headers.get("if-none-match", "").encode("latin-1").decode("utf-8", "replace")
        return Response(b"", 304) if sent == tag else Response(b"data", headers={"etag": tag})

    @app.get("/redirect")
    async def redirect(to: str) -> Response:
        return RedirectResponse(to, 302)

    @app.get("/private/{parameter}/{name}")
    async def private(request: Request, parameter: str) -> Response:
        """Redirect to a sign-in page, which gets the URL or the path to return to."""
        address = request.url.path if parameter == "next" else str(request.url)
        return RedirectResponse(f"/named?{urlencode({'client': 'x', parameter: address})}", 302)

    @app.get("/deleted/{name}")
    async def deleted(name: str) -> Response:
        return RedirectResponse("/", 301)

    @app.get("/")
    async def front_page() -> Response:
        return Response(b"Welcome", media_type="text/html")

    @app.get("/around/{left}")
    async def around(left: int) -> Response:
        return RedirectResponse(f"/around/{left - 1}" if left else "/files/end.pdf", 307)

    @app.get("/status/{code}")
    async def status(code: int) -> Response:
        return Response(b"no", code)

    @app.get("/claims")
    async def claims(size: int) -> Response:
        return StreamingResponse(_stream_endlessly(), headers={"content-length": str(size)})

    @app.get("/endless")
    async def endless() -> Response:
        return StreamingResponse(_stream_endlessly())

    @app.get("/slow")
    async def slow(request: Request) -> Response:
        while not await request.is_disconnected():
            await asyncio.sleep(0.02)
        return Response(b"too late")

    @app.get("/drip/{number}")
    async def drip(number: int) -> Response:
        """Send a byte every 0.2 s without end."""
        return StreamingResponse(_stream_slowly())

    return app


async def _stream_slowly() -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.2)


async def _stream_endlessly() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65_536
        await asyncio.sleep(0)
