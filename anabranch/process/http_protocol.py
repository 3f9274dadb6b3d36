"""HTTP parsing limits. Malformed requests get a problem document, although no route sees them."""

from __future__ import annotations

import json
import sys
from asyncio import TimerHandle, Transport
from http import HTTPStatus
from uuid import uuid4

from httptools import HttpParserCallbackError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.problems import MEDIA_TYPE, SECURITY_HEADERS

REMEDY = "Send well-formed HTTP/1.1: Content-Length is a number of bytes, and header names and values are plain text."
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
    """How often the client has read enough for writing to resume."""
    head_bytes = 0
    """Complete names and values of the head being read."""
    pending_bytes = 0
    """Bytes received since the parser last completed a head, a message or a body part: it buffers an
    incomplete header.
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
