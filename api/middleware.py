"""Middleware: request ids, compression, a concurrency limit, limits of request bodies, and
authentication.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address, ip_network
from math import ceil
from uuid import uuid4

import structlog
from cachetools import LRUCache
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette_compress import CompressMiddleware, add_compress_type, remove_compress_type

from api import sse
from api.problems import (
    CODE_BY_STATUS,
    MEDIA_TYPE,
    REMEDY_BY_STATUS,
    build_error_problem,
    build_problem,
)
from schemas.errors import AnabranchError, Forbidden, InvalidRequest, Unauthenticated
from schemas.principals import Authenticator

# The calls of an agent's message count too.
LIMITED_PATHS = ("/v1/", "/openai/", "/mcp")
MIN_COMPRESSED_BYTES = 2048
# Files, and responses that hold a credential.
UNCOMPRESSED_PATHS = ("/v1/signed/", "/v1/keys", "/v1/login-links")
# The library has one list of media types for all applications of a process.
remove_compress_type(sse.MEDIA_TYPE)
for media_type in (MEDIA_TYPE, "application/provenance+json", "application/jsonl", "text/csv"):
    add_compress_type(media_type)
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
                message.setdefault("headers", [])
                MutableHeaders(scope=message)["x-request-id"] = scope["request_id"]
            await send(message)

        await self.app(scope, receive, with_id)


class CompressionMiddleware:
    """Compress large responses with Brotli, or gzip where the client does not accept Brotli, and
    never event streams.

    Files of documents stay as they are: most are compressed already, and ETag, Content-Length and
    ranges are those of the file. Responses that issue credentials are not compressed, so that
    their length says nothing about the credential (the BREACH attack).
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        # As levels of gzip: 9 takes five times the CPU of 5 for 9 % fewer bytes of JSON. Brotli 5
        # takes the CPU of gzip 5 for 22 % fewer.
        self.compressing_app = CompressMiddleware(
            app, minimum_size=MIN_COMPRESSED_BYTES, zstd=False, brotli_quality=5, gzip_level=5
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_excluded = scope["type"] != "http" or (
            scope["path"].startswith(UNCOMPRESSED_PATHS)
            or (scope["path"].startswith("/v1/documents/") and scope["path"].endswith("/file"))
        )
        await (self.app if is_excluded else self.compressing_app)(scope, receive, send)


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
        self.app = app
        self.max_requests = max_requests
        self.max_requests_per_address = max_requests_per_address
        self.running_by_address: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Probes must be answered under load, or the orchestrator restarts a busy server.
        if scope["type"] != "http" or not scope["path"].startswith(LIMITED_PATHS):
            await self.app(scope, receive, send)
            return
        address = normalize_address(_get_address(scope))
        busy = ""
        if self.running_by_address.total() >= self.max_requests:
            busy = f"{self.max_requests} requests are in progress."
        elif self.running_by_address[address] >= self.max_requests_per_address:
            busy = f"{self.max_requests_per_address} requests from {address} are in progress."
        if busy:
            remedy = "Retry after the seconds given in Retry-After."
            problem = build_problem(Request(scope), 503, "BUSY", busy, remedy)
            await problem(scope, receive, send)
            return
        self.running_by_address[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.running_by_address[address] -= 1
            # Counter keeps zeros, and so one entry for every address ever seen.
            if not self.running_by_address[address]:
                del self.running_by_address[address]


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


log = structlog.get_logger("api")
# Probes, the API description and the files of the web UI contain no tenant data; signed links are
# credentials themselves.
OPEN_PATHS = ("/livez", "/readyz", "/openapi.json", "/docs", "/ui", "/v1/signed")
AUTHORIZATION, TENANT_HEADER = b"authorization", b"x-anabranch-tenant"
# The credential of a running request is checked again at this interval, so that revoking it also
# ends open streams.
RECHECK_INTERVAL_S = 0.8
MAX_ACCEPTED_CREDENTIALS = 4096
# Prefix of API keys: the only credentials whose verification takes noticeable time.
API_KEY_PREFIX = "ab_"
# Period over which the failed authentications of one address are counted.
WINDOW_S = 60.0
MAX_ADDRESSES = 10_000


@dataclass(slots=True)
class FailureLimit:
    """Failures per address in windows of WINDOW_S.

    When full, evicts the address whose last failure is oldest.
    """

    max_failures: int
    clock: Callable[[], float] = time.monotonic
    _windows: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    def record_failure(self, address: str) -> None:
        # Removed and added again, so that the dict is in order of the last failure.
        window_end, failures = self._windows.pop(address, (0.0, 0))
        if self.clock() >= window_end:
            window_end, failures = self.clock() + WINDOW_S, 0
        self._windows[address] = (window_end, failures + 1)
        # Bounded, because one sender can have many addresses.
        while len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)

    def get_wait_s(self, address: str) -> int | None:
        """Return the seconds until the address may fail again; None while it may."""
        window_end, failures = self._windows.get(address, (0.0, 0))
        remaining_s = window_end - self.clock()
        return (
            max(1, ceil(remaining_s)) if failures >= self.max_failures and remaining_s > 0 else None
        )


class AuthenticationMiddleware:
    """Set `scope["principal"]`, or respond 401, 403 or 429.

    After too many failures, an address gets 429 in place of 401, and its API keys are not verified
    unless they were valid before. Other users behind the same address keep their access, and
    guessing costs no CPU.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Authenticator,
        max_failures: int,
        count_failure: Callable[[], None],
    ) -> None:
        self.app, self.authenticate, self.count_failure = app, authenticate, count_failure
        self.failures = FailureLimit(max_failures)
        # Digests of credentials that were valid when last presented.
        self.admitted: LRUCache[bytes, None] = LRUCache(MAX_ACCEPTED_CREDENTIALS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        credential: str | None = None
        try:
            credential = _parse_bearer(_get_single_header(scope, AUTHORIZATION))
            tenant = _get_single_header(scope, TENANT_HEADER)
            # Before verification, which is what guessing would make expensive.
            if (
                credential is not None
                and credential.startswith(API_KEY_PREFIX)
                and _hash_credential(credential) not in self.admitted
                and (wait_s := self.failures.get_wait_s(_get_address(scope)))
            ):
                await _build_too_many_failures(scope, wait_s)(scope, receive, send)
                return
            scope["principal"] = await self.authenticate(credential, tenant)
        except AnabranchError as error:
            await self._build_refusal(scope, error, credential)(scope, receive, send)
            return
        if credential is not None:
            self.admitted[_hash_credential(credential)] = None
        await self.app(scope, self._wrap_receive(receive, credential, tenant), send)

    def _build_refusal(
        self, scope: Scope, error: AnabranchError, credential: str | None
    ) -> ASGIApp:
        is_unauthenticated, address = isinstance(error, Unauthenticated), _get_address(scope)
        if is_unauthenticated or isinstance(error, Forbidden):
            log.warning(
                "authentication_failed" if is_unauthenticated else "access_denied",
                address=address,
                path=scope["path"],
                request_id=scope.get("request_id"),
                reason=error.detail,
            )
        if is_unauthenticated:
            wait_s = self.failures.get_wait_s(address)
            self.count_failure()
            if credential is not None:
                # A revoked key must not keep its exemption from the limit.
                self.admitted.pop(_hash_credential(credential), None)
                self.failures.record_failure(address)
                if wait_s is not None:
                    return _build_too_many_failures(scope, wait_s)
        return build_error_problem(Request(scope), error)

    def _wrap_receive(
        self, receive: Receive, credential: str | None, tenant: str | None
    ) -> Receive:
        """Simulate a disconnect of the client once its credential is no longer valid."""

        async def receive_while_valid() -> Message:
            # A task, because cancelling `receive` at each check could lose a message.
            receive_task = asyncio.ensure_future(receive())
            try:
                while True:
                    done, _ = await asyncio.wait({receive_task}, timeout=RECHECK_INTERVAL_S)
                    if done:
                        return receive_task.result()
                    if not await self._is_credential_valid(credential, tenant):
                        return {"type": "http.disconnect"}
            finally:
                receive_task.cancel()

        return receive_while_valid

    async def _is_credential_valid(self, credential: str | None, tenant: str | None) -> bool:
        try:
            await self.authenticate(credential, tenant)
        # Forbidden too: the credential may no longer reach this tenant.
        except (Unauthenticated, Forbidden):
            return False
        except AnabranchError:
            # The database or the issuer is unavailable, which does not make the credential invalid.
            return True
        return True


def _is_open(path: str) -> bool:
    return path == "/" or any(
        path == open_path or path.startswith(f"{open_path}/") for open_path in OPEN_PATHS
    )


def _get_single_header(scope: Scope, name: bytes) -> str | None:
    """Return the header's value.

    Raises InvalidRequest for a repeated header: a proxy and this server might each use another
    value.
    """
    values = [value for header_name, value in scope["headers"] if header_name == name]
    if len(values) > 1:
        raise InvalidRequest(
            f"Header {name.decode().title()} was sent {len(values)} times.", remedy="Send it once."
        )
    return values[0].decode("latin-1") if values else None


def _parse_bearer(header: str | None) -> str | None:
    """Return the bearer token (RFC 6750, section 2.1), or None without the header."""
    if header is None:
        return None
    scheme, _, credential = header.partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        raise Unauthenticated("The Authorization header is not of the form 'Bearer TOKEN'.")
    return credential.strip()


def _build_too_many_failures(scope: Scope, wait_s: int) -> ASGIApp:
    detail = "Too many failed authentications from this address."
    remedy = f"Retry after {wait_s} s with a valid credential."
    return build_problem(
        Request(scope), 429, "TOO_MANY_FAILURES", detail, remedy, {"Retry-After": str(wait_s)}
    )


def _get_address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _hash_credential(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()
