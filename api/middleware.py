"""Middleware: request ids, a concurrency limit, and limits on the size and duration of request
bodies.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from ipaddress import IPv4Address, ip_address, ip_network
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import CODE_BY_STATUS, REMEDY_BY_STATUS, build_problem

# The calls of an agent's message count too.
LIMITED_PATHS = ("/v1/", "/openai/", "/mcp")
MAX_JSON_BYTES = 32 * 1024 * 1024
MEMORY_BODY_TIMEOUT_S = 30.0
UPLOAD_GRACE_S = 10.0
_REQUEST_ID_PATTERN = re.compile(rb"^[A-Za-z0-9._:-]{1,128}$")


class RequestIdMiddleware:
    """Use a well-formed `X-Request-ID` of the caller, or generate one, and return it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        client_request_id = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = (
            client_request_id
            if _REQUEST_ID_PATTERN.match(client_request_id)
            else uuid4().hex.encode()
        )
        # Handlers, logs and problem documents read it from the scope.
        scope["request_id"] = request_id.decode()

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                other_headers = [
                    pair for pair in message.get("headers", []) if pair[0] != b"x-request-id"
                ]
                message["headers"] = [*other_headers, (b"x-request-id", request_id)]
            await send(message)

        await self.app(scope, receive, with_id)


class BasePathMiddleware:
    """Serve everything also below a path, for a reverse proxy that does not remove it.

    Added last: every other middleware and route sees the path without it.
    """

    def __init__(self, app: ASGIApp, base_path: str) -> None:
        self.app, self.base_path = app, base_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.base_path and scope["type"] == "http":
            path: str = scope["path"]
            if path == self.base_path:
                # Without the slash, browsers resolve relative addresses outside the path.
                query = scope["query_string"].decode("latin-1")
                redirect = RedirectResponse(f"{path}/" + (f"?{query}" if query else ""))
                await redirect(scope, receive, send)
                return
            if path.startswith(f"{self.base_path}/"):
                raw_path: bytes = scope.get("raw_path") or path.encode()
                scope = {
                    **scope,
                    "path": path.removeprefix(self.base_path),
                    "raw_path": raw_path.removeprefix(self.base_path.encode()),
                }
        await self.app(scope, receive, send)


class BodyLimitMiddleware:
    """Limit request bodies in size and duration.

    A body is rejected by its Content-Length before it is read, else as soon as it exceeds the
    limit. A multipart upload may hold a file of `max_bytes` besides its fields, and must sustain
    `min_bytes_per_s` after `UPLOAD_GRACE_S`. Any other body is read into memory: at most
    `MAX_JSON_BYTES` within `MEMORY_BODY_TIMEOUT_S`. Only time spent waiting for the client counts.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, min_bytes_per_s: int) -> None:
        self.app, self.max_bytes, self.min_bytes_per_s = app, max_bytes, min_bytes_per_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        multipart = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        max_body_bytes = self.max_bytes + MAX_JSON_BYTES if multipart else MAX_JSON_BYTES
        content_length = headers.get(b"content-length", b"").lstrip(b"0")
        # Its length is compared first, since Python refuses to parse thousands of digits.
        if content_length.isdigit() and (
            len(content_length) > len(str(max_body_bytes)) or int(content_length) > max_body_bytes
        ):
            problem = build_problem(
                Request(scope),
                413,
                CODE_BY_STATUS[413],
                f"A body of {content_length[:40].decode()} bytes exceeds the limit of "
                f"{max_body_bytes} bytes.",
                REMEDY_BY_STATUS[413],
                {"Connection": "close"},
            )
            await problem(scope, receive, send)
            return
        bounded_body = BoundedRequestBody(
            receive, max_body_bytes, self.min_bytes_per_s if multipart else None
        )
        await self.app(scope, bounded_body.receive, send)


class BoundedRequestBody:
    """A request's `receive` with limits.

    With `min_bytes_per_s`, the time limit is `UPLOAD_GRACE_S` plus one second per `min_bytes_per_s`
    received.
    """

    def __init__(self, receive: Receive, max_bytes: int, min_bytes_per_s: int | None) -> None:
        self._receive, self._max_bytes, self._min_bytes_per_s = receive, max_bytes, min_bytes_per_s
        self._received_bytes, self._waited_s, self._complete = 0, 0.0, False

    async def receive(self) -> Message:
        # Only a disconnect can follow, which a long-running request may await without limit.
        if self._complete:
            return await self._receive()
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        try:
            # Only waiting counts: a slow store must not use up the client's time.
            async with asyncio.timeout(self._allowed_s - self._waited_s):
                message = await self._receive()
        except TimeoutError:
            # The rest of the body is unread, so the connection cannot be used again.
            progress = (
                f"Received {self._received_bytes} bytes of the body in {self._allowed_s:.0f} s"
            )
            detail = (
                f"{progress}."
                if self._min_bytes_per_s is None
                else f"{progress}, below {self._min_bytes_per_s} bytes/s."
            )
            raise HTTPException(408, detail, {"Connection": "close"}) from None
        self._waited_s += loop.time() - started_at
        self._received_bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._received_bytes > self._max_bytes:
            raise HTTPException(413, f"The body exceeds the limit of {self._max_bytes} bytes.")
        return message

    @property
    def _allowed_s(self) -> float:
        return (
            MEMORY_BODY_TIMEOUT_S
            if self._min_bytes_per_s is None
            else UPLOAD_GRACE_S + self._received_bytes / self._min_bytes_per_s
        )


class ConcurrencyLimitMiddleware:
    """Admit at most `max_requests` at once, and `max_requests_per_address` of one remote address.

    The second limit keeps one client from shutting out the others. Health checks are always
    admitted.
    """

    def __init__(self, app: ASGIApp, max_requests: int, max_requests_per_address: int) -> None:
        self.app, self.max_requests, self.max_requests_per_address = (
            app,
            max_requests,
            max_requests_per_address,
        )
        self.running_by_address: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Probes must be answered under load, or the orchestrator restarts a busy server.
        if scope["type"] != "http" or not scope["path"].startswith(LIMITED_PATHS):
            await self.app(scope, receive, send)
            return
        address = normalize_address((scope.get("client") or ("",))[0])
        if self.running_by_address.total() >= self.max_requests:
            await _build_busy_problem(scope, f"{self.max_requests} requests are in progress.")(
                scope, receive, send
            )
            return
        if self.running_by_address[address] >= self.max_requests_per_address:
            await _build_busy_problem(
                scope, f"{self.max_requests_per_address} requests from {address} are in progress."
            )(scope, receive, send)
            return
        self.running_by_address[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.running_by_address[address] -= 1
            # Counter keeps zeros, and so one entry for every address ever seen.
            if not self.running_by_address[address]:
                del self.running_by_address[address]


def _build_busy_problem(scope: Scope, detail: str) -> ASGIApp:
    return build_problem(
        Request(scope), 503, "BUSY", detail, "Retry after the seconds given in Retry-After."
    )


def normalize_address(host: str) -> str:
    """Return an IPv4 address itself, or the /64 network of an IPv6 address.

    One subscriber has a whole /64.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv4Address) or address.ipv4_mapped:
        return str(getattr(address, "ipv4_mapped", None) or address)
    return str(ip_network((int(address) >> 64 << 64, 64)))
