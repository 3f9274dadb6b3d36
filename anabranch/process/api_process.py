"""Run the API process, with an HTTP protocol that limits slow and large requests."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from asyncio import TimerHandle, Transport
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from http import HTTPStatus
from importlib import import_module
from socket import socket
from uuid import uuid4

import uvicorn
from fastapi import FastAPI
from httptools import HttpParserCallbackError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anabranch.composition.api import Diagnose, prepare_api
from anabranch.config.settings import ApiSettings, Settings
from anabranch.config.version import warn_of_advisories
from anabranch.kafka.settings import wait_for_kafka
from anabranch.process.data_folder import check_data_folder
from anabranch.process.database import open_database
from anabranch.process.tcp_ports import wait_for_free_port
from api.app import create_app
from api.problems import MEDIA_TYPE, SECURITY_HEADERS
from api.services import Services
from schemas.errors import ConfigurationError


def freeze_heap() -> None:
    """Exempt everything loaded so far from full collections.

    One takes 60 ms of the search that it interrupts.
    """
    gc.collect()
    gc.freeze()


REMEDY = (
    "Send well-formed HTTP/1.1: Content-Length is a number of bytes, and header names and values "
    "are plain text."
)
HEADERS_REMEDY = "Send fewer and shorter headers."
MAX_HEAD_BYTES = 64 * 1024
"""Limit of the request line and all headers, including trailers and chunk extensions."""
MAX_HEADERS = 100
HEAD_TIMEOUT_S = 30.0
"""Limit for the request line and all headers, from the connection or the first byte of the head."""


class HeadTooLarge(Exception):
    """The request's head exceeds `MAX_HEAD_BYTES` or `MAX_HEADERS`."""


class HttpProtocol(HttpToolsProtocol):
    resume_count = 0
    """Number of times that the client has read enough for writing to resume."""
    head_bytes = 0
    """Complete names and values of the head being read."""
    pending_bytes = 0
    """Bytes received since the parser last completed a head, a message or a body part.

    It buffers an incomplete header.
    """
    head_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.pending_bytes += len(data)
        super().data_received(data)
        if self.pending_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(
                431,
                "HEADERS_TOO_LARGE",
                f"the headers have more than {MAX_HEAD_BYTES} bytes",
                HEADERS_REMEDY,
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.head_bytes = 0
        # The first request's timer has run since the connection was made.
        if self.head_timer is None:
            self._start_head_timer()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_head_bytes(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        self.pending_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.pending_bytes = 0
        super().on_message_complete()

    def resume_writing(self) -> None:
        self.resume_count += 1
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Called while the parser's exception is handled; the connection cannot be reused."""
        error = sys.exception()
        if isinstance(error, HttpParserCallbackError) and isinstance(
            error.__context__, HeadTooLarge
        ):
            self._refuse(431, "HEADERS_TOO_LARGE", str(error.__context__), HEADERS_REMEDY)
            return
        self._refuse(
            400,
            "BAD_REQUEST",
            f"this request cannot be read: {str(error or msg).rstrip('.')}",
            REMEDY,
        )

    def _count_head_bytes(self, n_bytes: int) -> None:
        self.head_bytes += n_bytes
        if self.head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge(f"the headers have more than {MAX_HEAD_BYTES} bytes")
        if len(self.headers) > MAX_HEADERS:
            raise HeadTooLarge(f"the request has more than {MAX_HEADERS} headers")

    def _start_head_timer(self) -> None:
        self.head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._handle_head_timeout)

    def _stop_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _handle_head_timeout(self) -> None:
        # Nothing was received: an idle connection, not a slow request.
        if not self.pending_bytes:
            self.transport.close()
        elif not self.transport.is_closing():
            self._refuse(
                408,
                "REQUEST_TIMEOUT",
                f"the headers took more than {HEAD_TIMEOUT_S:g} s",
                "Send the request again.",
            )

    def _refuse(self, status: int, code: str, detail: str, remedy: str) -> None:
        self.transport.write(format_problem_response(status, code, detail, remedy, uuid4().hex))
        self.transport.close()


def format_problem_response(
    status: int, code: str, detail: str, remedy: str, request_id: str
) -> bytes:
    title = HTTPStatus(status).phrase
    fields = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "remedy": remedy,
    }
    body = json.dumps(fields | {"request_id": request_id}).encode()
    headers = {
        "Content-Type": MEDIA_TYPE,
        "Content-Length": len(body),
        "X-Request-ID": request_id,
        "Connection": "close",
        **SECURITY_HEADERS,
    }
    lines = [
        f"HTTP/1.1 {status} {title}",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


PORT_TIMEOUT_S = 2.0
KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection (HTTP libraries: 5 to 60 s), so that the client
closes it: a connection that the server closes may just be reused.
"""
STALL_CHECK_S = 1.2
"""Interval of the stall check. On a busy machine a reading client may get nothing for 0.5 s."""


class UvicornServer(uvicorn.Server):
    """Uvicorn that leaves signals to its caller and, when it stops, drops stalled clients."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        stalled_dropper = asyncio.create_task(self._drop_stalled())
        try:
            await super().shutdown(sockets)
        finally:
            stalled_dropper.cancel()

    async def _drop_stalled(self) -> None:
        stalled: dict[HttpProtocol, tuple[int, int]] = {}
        while True:
            previously_stalled, stalled = stalled, {}
            for connection in self.server_state.connections:
                if isinstance(connection, HttpProtocol) and connection.flow.write_paused:
                    unread = connection.transport.get_write_buffer_size()
                    stalled[connection] = (connection.resume_count, unread)
                    # Paused at two checks, and the client has read nothing in between.
                    if previously_stalled.get(connection) == stalled[connection]:
                        connection.transport.abort()
            await asyncio.sleep(STALL_CHECK_S)


async def serve_api(settings: Settings, diagnose: Diagnose) -> None:
    """Serve until cancelled. Raises ConfigurationError if a port is taken or a package is missing,
    before creating anything.
    """
    warn_of_advisories()
    await wait_for_free_port(settings.api.host, settings.api.port, timeout_s=PORT_TIMEOUT_S)
    open_grpc = await prepare_grpc(settings.api)
    check_data_folder(settings.data_dir)
    await wait_for_kafka(settings)
    async with (
        open_database(settings, is_shared=True) as dsn,
        prepare_api(settings, dsn, diagnose=diagnose) as services,
    ):
        app = create_app(
            services,
            max_requests_per_address=settings.api.requests_per_address,
            min_upload_bytes_per_s=settings.api.min_upload_rate,
        )
        config = uvicorn.Config(
            app,
            host=settings.api.host,
            port=settings.api.port,
            log_config=None,
            access_log=False,
            http=HttpProtocol,
            # The contexts above open and close everything.
            lifespan="off",
            timeout_graceful_shutdown=3,
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
            # X-Forwarded-For is a claim: with it one local caller would count as many.
            proxy_headers=False,
        )
        freeze_heap()

        def stop_streams() -> None:
            services.event_feed.close_streams()
            services.runs.interrupt()

        async with open_grpc(app, services):
            await _serve_until_cancelled(UvicornServer(config), stop_streams)


OpenGrpc = Callable[[FastAPI, Services], AbstractAsyncContextManager[int | None]]


async def prepare_grpc(settings: ApiSettings) -> OpenGrpc:
    """Return the function that serves the application over gRPC, or not without a port.

    Raises ConfigurationError if the port is taken or a package is missing.
    """
    port = settings.grpc_port
    if port is None:
        return lambda app, services: nullcontext()
    await wait_for_free_port(
        settings.host, port, option="--set api.grpc_port=PORT", timeout_s=PORT_TIMEOUT_S
    )
    try:
        # Here, because the library is optional and takes time and threads.
        serve_grpc = import_module("api.grpc.server").serve_grpc
    except ImportError as error:
        raise ConfigurationError(
            f"api.grpc_port is {port}, but a package is missing: {error}.",
            code="NO_GRPC",
            remedy="In the clone, run `make install EXTRAS=grpc`. Or unset api.grpc_port.",
        ) from error
    return lambda app, services: serve_grpc(
        app, services.public_url or "http://localhost", settings.host, port
    )


async def _serve_until_cancelled(server: UvicornServer, stop_streams: Callable[[], None]) -> None:
    """Stop gracefully when cancelled: streams end, running requests are completed."""
    serving = asyncio.create_task(server.serve())
    try:
        # Shielded: cancelling this task would break off running requests.
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        stop_streams()
        server.should_exit = True
        await serving
        raise
