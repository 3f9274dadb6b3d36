"""Browser sessions: a one-time link is exchanged for a cookie in place of the operator's token."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from itsdangerous import BadSignature, TimestampSigner
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.browser_guard import SAFE_METHODS
from api.problems import build_problem
from schemas.errors import Unauthenticated

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
