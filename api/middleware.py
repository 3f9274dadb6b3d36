"""Around every request: an id, a bound on how many run at once, and bounds on the size and the slowness of bodies."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from ipaddress import IPv4Address, ip_address, ip_network
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import CODE_OF_STATUS, REMEDY_OF_STATUS, problem

MAX_JSON_BYTES = 32 * 1024 * 1024
MEMORY_BODY_TIMEOUT_S = 30.0
UPLOAD_GRACE_S = 10.0
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
    """Bounds a body in bytes and in time.

    A body is refused at its first byte by what it claims, else as soon as too much came. A multipart upload may hold a file of `max_bytes` beside its fields, and
    must keep up `min_rate` bytes a second after `UPLOAD_GRACE_S`; anything else is read into memory, so at most `MAX_JSON_BYTES` within `MEMORY_BODY_TIMEOUT_S`.
    Only time spent waiting for the caller counts."""

    def __init__(self, app: ASGIApp, max_bytes: int, min_rate: int) -> None:
        self.app, self.max_bytes, self.min_rate = app, max_bytes, min_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        multipart = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        limit = self.max_bytes + MAX_JSON_BYTES if multipart else MAX_JSON_BYTES
        claimed = headers.get(b"content-length", b"").lstrip(b"0")
        if claimed.isdigit() and (len(claimed) > len(str(limit)) or int(claimed) > limit):
            await _refusal(scope, limit, f"a body of {claimed[:40].decode()} bytes")(scope, receive, send)
            return
        bounded = BoundedBody(receive, limit, self.min_rate if multipart else None)
        await self.app(scope, bounded.receive, send)


class BoundedBody:
    """A request's `receive`, bounded. With `min_rate` the body may take `UPLOAD_GRACE_S` and a second more for each `min_rate` bytes that came."""

    def __init__(self, receive: Receive, limit: int, min_rate: int | None) -> None:
        self._receive, self._limit, self._min_rate = receive, limit, min_rate
        self._seen, self._waited_s, self._complete = 0, 0.0, False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._allowed_s - self._waited_s):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, self._too_slow(), {"Connection": "close"}) from None
        self._waited_s += loop.time() - began
        self._seen += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._seen > self._limit:
            raise HTTPException(413, f"the body is over the limit of {self._limit} bytes")
        return message

    @property
    def _allowed_s(self) -> float:
        return MEMORY_BODY_TIMEOUT_S if self._min_rate is None else UPLOAD_GRACE_S + self._seen / self._min_rate

    def _too_slow(self) -> str:
        came = f"{self._seen} bytes of the body came in {self._allowed_s:.0f} s"
        return came if self._min_rate is None else f"{came}, less than {self._min_rate} bytes a second"


def _refusal(scope: Scope, limit: int, what: str) -> ASGIApp:
    return problem(Request(scope), 413, CODE_OF_STATUS[413], f"{what} is over the limit of {limit} bytes", REMEDY_OF_STATUS[413], {"Connection": "close"})


class Slots:
    """Admit at most `most` requests at once, and at most `most_of_one` of one remote address, so that none shuts the others out.
    Health checks always get through."""

    def __init__(self, app: ASGIApp, most: int, most_of_one: int) -> None:
        self.app, self.most, self.most_of_one = app, most, most_of_one
        self.requests: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        address = network_of((scope.get("client") or ("",))[0])
        if self.requests.total() >= self.most:
            await _busy(scope, f"{self.most} requests are under way")(scope, receive, send)
            return
        if self.requests[address] >= self.most_of_one:
            await _busy(scope, f"{self.most_of_one} requests of {address} are under way")(scope, receive, send)
            return
        self.requests[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.requests[address] -= 1
            if not self.requests[address]:
                del self.requests[address]


def _busy(scope: Scope, detail: str) -> ASGIApp:
    return problem(Request(scope), 503, "BUSY", detail, "Come back after the seconds in Retry-After.")


def network_of(host: str) -> str:
    """The address itself, or the /64 of an IPv6 address: a single subscriber has as many addresses as that holds."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv4Address) or address.ipv4_mapped:
        return str(getattr(address, "ipv4_mapped", None) or address)
    return str(ip_network((int(address) >> 64 << 64, 64)))
