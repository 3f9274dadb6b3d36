"""Around every request: an id, a bound on how many run at once, and one on bodies that are read into memory."""

from __future__ import annotations

import re
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import CODE_OF_STATUS, REMEDY_OF_STATUS, problem

MAX_JSON_BYTES = 32 * 1024 * 1024
_GIVEN = re.compile(rb"^[A-Za-z0-9._:-]{1,128}$")


class RequestId:
    """Takes the caller's `X-Request-ID` where it is plain, else makes one; every answer carries it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        identity = given if _GIVEN.match(given) else uuid4().hex.encode()
        scope["request_id"] = identity.decode()

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [pair for pair in message.get("headers", []) if pair[0] != b"x-request-id"]
                message["headers"] = [*others, (b"x-request-id", identity)]
            await send(message)

        await self.app(scope, receive, with_id)


class BodyLimit:
    """Refuses bodies over the limit at their first byte by what they claim, else as soon as too much came. A multipart upload may hold a file of
    `max_bytes` beside its fields; anything else is read into memory, so at most `MAX_JSON_BYTES`."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        multipart = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        limit = self.max_bytes + MAX_JSON_BYTES if multipart else MAX_JSON_BYTES
        claimed = headers.get(b"content-length", b"")
        if claimed.isdigit() and int(claimed) > limit:
            await _refusal(scope, limit, f"a body of {int(claimed)} bytes")(scope, receive, send)
            return
        await self.app(scope, _counting(receive, limit), send)


def _counting(receive: Receive, limit: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, f"the body is over the limit of {limit} bytes")
        return message

    return counted


def _refusal(scope: Scope, limit: int, what: str) -> ASGIApp:
    return problem(Request(scope), 413, CODE_OF_STATUS[413], f"{what} is over the limit of {limit} bytes", REMEDY_OF_STATUS[413], {"Connection": "close"})


class Slots:
    """At most so many requests at once; one more is told to come back. Health checks always get through."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most, self.now = app, most, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        if self.now >= self.most:
            await problem(Request(scope), 503, "BUSY", f"{self.most} requests are under way", "Come back after the seconds in Retry-After.")(
                scope, receive, send
            )
            return
        self.now += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.now -= 1
