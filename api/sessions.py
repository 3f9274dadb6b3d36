"""Protect the API from web pages, and give browsers sessions and links.

A browser can reach a loopback address on behalf of any page it shows. A page of another site can
send plain forms (CSRF) and, after DNS rebinding, read responses. The server therefore accepts only
its own host names, and rejects unsafe methods from other origins.

A one-time link is exchanged for a cookie in place of the operator's token. Expiring links to files,
for blob stores that cannot sign their own, carry an HMAC-SHA256 (RFC 2104) over target and expiry.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit
from uuid import UUID

from itsdangerous import BadSignature, Signer, TimestampSigner
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import SECURITY_HEADERS, build_problem
from schemas.errors import InvalidRequest, Unauthenticated

REQUEST_HEADER = b"x-anabranch-request"
LINK_LIFETIME_S = 600
SESSION_LIFETIME_S = 12 * 3600
MAX_COOKIE_BYTES = 4_096
NEW_LINK_REMEDY = "Run `anabranch open` for a new link."


class ClockSigner(TimestampSigner):
    """A signer of one kind of value, with a clock that tests can move."""

    def __init__(self, token: str, kind: str, clock: Callable[[], float]) -> None:
        # The salt keeps a code from being accepted as a cookie, and the reverse.
        super().__init__(token, salt=kind, key_derivation="hmac", digest_method=hashlib.sha256)
        self.clock = clock

    def get_timestamp(self) -> int:
        return int(self.clock())


@dataclass(slots=True)
class BrowserSessions:
    """Codes and cookies signed with the token, so that they become invalid with it.

    Only used codes are stored.
    """

    token: str
    clock: Callable[[], float] = time.time
    # Expiry by payload. Not by code: Base64 has several spellings of one signature, each of which
    # would open a session. Not shared between replicas: behind a load balancer a code can be used
    # once at each.
    used_codes: dict[bytes, float] = field(default_factory=dict)

    def make_code(self) -> str:
        return self._sign("code")

    def exchange_code(self, code: str) -> str:
        """Return the cookie for a code. Raises Unauthenticated for a code that is forged, expired
        or used.
        """
        now = self.clock()
        # An expired code is refused anyway, so it need not be stored.
        self.used_codes = {
            used_code: expiry for used_code, expiry in self.used_codes.items() if expiry > now
        }
        payload = self._verify("code", code, LINK_LIFETIME_S)
        if payload is None or payload in self.used_codes:
            raise Unauthenticated(
                "The login link is expired or already used.", remedy=NEW_LINK_REMEDY
            )
        # 1 s longer than the code, whose time stamp has whole seconds.
        self.used_codes[payload] = now + LINK_LIFETIME_S + 1
        return self._sign("session")

    def is_valid(self, cookie: str) -> bool:
        return self._verify("session", cookie, SESSION_LIFETIME_S) is not None

    def _sign(self, kind: str) -> str:
        return ClockSigner(self.token, kind, self.clock).sign(secrets.token_urlsafe(16)).decode()

    def _verify(self, kind: str, value: str, lifetime_s: int) -> bytes | None:
        try:
            return ClockSigner(self.token, kind, self.clock).unsign(value, max_age=lifetime_s)
        except BadSignature:
            return None


class SessionCookieMiddleware:
    """Add the operator's token to requests of a browser with a valid session.

    An Authorization header takes precedence. Unsafe methods also need the header
    `X-Anabranch-Request`: a form cannot send it, and a script of another site only after a
    preflight, which is refused.
    """

    def __init__(self, app: ASGIApp, sessions: BrowserSessions | None) -> None:
        self.app, self.sessions = app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # From here on a session is the operator's token. No route knows of cookies, and the
            # framework must not parse them: Python's parser takes quadratic time (CVE-2024-7592).
            headers = [header for header in scope["headers"] if header[0] != b"cookie"]
            if self.sessions is not None and self._has_valid_session(scope, self.sessions):
                if scope["method"] not in SAFE_METHODS and REQUEST_HEADER not in dict(headers):
                    await _build_missing_header_problem(scope)(scope, receive, send)
                    return
                headers.append((b"authorization", f"Bearer {self.sessions.token}".encode()))
            scope = {**scope, "headers": headers}
        await self.app(scope, receive, send)

    def _has_valid_session(self, scope: Scope, sessions: BrowserSessions) -> bool:
        headers = dict(scope["headers"])
        # Browsers share cookies between ports, so they send ours for pages of other servers on this
        # machine.
        if b"authorization" in headers or headers.get(b"sec-fetch-site", b"same-origin") not in (
            b"same-origin",
            b"none",
        ):
            return False
        value = find_cookie(headers.get(b"cookie", b""), get_cookie_name(scope))
        return value is not None and sessions.is_valid(value)


def find_cookie(header: bytes, name: str) -> str | None:
    """Return the cookie of this name. Others are not read, and a longer header is ignored."""
    if len(header) > MAX_COOKIE_BYTES:
        return None
    for pair in header.decode("latin-1").split(";"):
        found_name, _, value = pair.partition("=")
        if found_name.strip() == name:
            # Starlette quotes values with special characters; ours has none.
            return value.strip().strip('"')
    return None


def _build_missing_header_problem(scope: Scope) -> ASGIApp:
    return build_problem(
        Request(scope),
        401,
        Unauthenticated.code,
        f"A {scope['method']} request by a session needs the header X-Anabranch-Request.",
        "Send X-Anabranch-Request: 1 from a page of this server, or a bearer token.",
    )


def get_cookie_name(scope: Scope) -> str:
    """Include the port: browsers share cookies between the servers of one machine."""
    server = scope.get("server")
    return f"anabranch_session_{server[1] if server else 0}"


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """The file of one revision. A later revision needs a new link."""

    tenant: str
    document_id: UUID
    revision: int


@dataclass(frozen=True, slots=True)
class LinkSigner:
    """All replicas with the same secret accept each other's links."""

    secret: bytes

    @property
    def _signer(self) -> Signer:
        return Signer(self.secret, salt="link", key_derivation="hmac", digest_method=hashlib.sha256)

    def sign(self, target: LinkTarget, expires_at_s: int) -> str:
        """Return the signature. `expires_at_s` is a Unix time."""
        return self._signer.get_signature(_format_claims(target, expires_at_s)).decode()

    def verify(self, target: LinkTarget, expires_at_s: int, signature: str, now: datetime) -> None:
        """Raises InvalidRequest with code LINK_EXPIRED or LINK_FORGED."""
        remedy = "Get a new link from GET /v1/documents/{id}/file?signed=true."
        # The signature first: the expiry of a forged link means nothing.
        if not self._signer.verify_signature(_format_claims(target, expires_at_s), signature):
            raise InvalidRequest("Invalid link signature.", code="LINK_FORGED", remedy=remedy)
        if expires_at_s < now.timestamp():
            raise InvalidRequest(
                f"The link expired at {datetime.fromtimestamp(expires_at_s, UTC).isoformat()}.",
                code="LINK_EXPIRED",
                remedy=remedy,
            )


def _format_claims(target: LinkTarget, expires_at_s: int) -> bytes:
    return json.dumps(
        [target.tenant, str(target.document_id), target.revision, expires_at_s]
    ).encode()


SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
DEFAULT_PORTS = {"http": 80, "https": 443}


class SecurityHeadersMiddleware:
    """Add the security headers to every response, unless a route sets its own value."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


class BrowserGuardMiddleware:
    """Reject an unknown `Host` (421), and unsafe methods from another origin (403).

    `hosts` adds names to those of the loopback address and the address that the connection was made
    to.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self.app, self.hosts = app, frozenset(_parse_host(host)[0] for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._check_request(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _check_request(self, request: Request) -> JSONResponse | None:
        host = request.headers.getlist("host")
        # Several Host headers may be read differently by a proxy and by this server.
        if len(host) != 1 or not self._is_own_host(host[0], request.scope.get("server")):
            host_list = ", ".join(host) or "none"
            remedy = (
                "Use the address that the server listens on, or add the host to "
                "ANABRANCH_API__HOSTS."
            )
            return build_problem(
                request, 421, "UNKNOWN_HOST", f"Unknown host {host_list!r}.", remedy
            )
        if request.method in SAFE_METHODS:
            return None
        for origin in request.headers.getlist("origin"):
            if not _is_same_origin(origin, host[0]):
                return _build_foreign_origin_problem(
                    request, f"Origin {origin!r} does not match host {host[0]!r}."
                )
        site = request.headers.get("sec-fetch-site")
        # Also without an Origin header.
        if site in ("cross-site", "same-site"):
            return _build_foreign_origin_problem(
                request, f"The request was sent by a page of another site (Sec-Fetch-Site: {site})."
            )
        return None

    def _is_own_host(self, host: str, server: tuple[str, int | None] | None) -> bool:
        name, _ = _parse_host(host)
        if name in self.hosts or name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # The scope id of a link-local IPv6 address is not part of Host.
        return address.is_loopback or (server is not None and name == server[0].partition("%")[0])


def _build_foreign_origin_problem(request: Request, detail: str) -> JSONResponse:
    return build_problem(
        request,
        403,
        "FOREIGN_ORIGIN",
        detail,
        "Send the request from a page of this server, or from a program that is not a browser.",
    )


def _is_same_origin(origin: str, host: str) -> bool:
    """Compare host and port, but no schemes: a proxy may terminate TLS.

    The origin `null` of sandboxed pages and files matches nothing.
    """
    parts = urlsplit(origin)
    default_port = DEFAULT_PORTS.get(parts.scheme)
    if default_port is None:
        return False
    origin_parts, host_parts = _parse_host(parts.netloc), _parse_host(host)
    return bool(origin_parts[0]) and (origin_parts[0], origin_parts[1] or default_port) == (
        host_parts[0],
        host_parts[1] or default_port,
    )


def _parse_host(host: str) -> tuple[str, int | None]:
    """Return the name in lower case, without brackets and trailing dot, and the port.

    The name is empty when malformed.
    """
    name, colon, port = (
        host.rpartition(":")
        if not host.endswith("]") and (host.count(":") == 1 or host.startswith("["))
        else (host, "", "")
    )
    if (colon and not (port.isascii() and port.isdigit() and len(port) <= 5)) or "@" in host:
        return "", None
    return name.strip("[]").rstrip(".").lower(), int(port) if port else None
