"""Sessions of browsers: a one-time link is exchanged for a cookie that stands for the operator's token, as Jupyter does it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Receive, Scope, Send

from api.browser_guard import SAFE_METHODS
from schemas.errors import Unauthenticated

OWN_REQUEST = b"x-anabranch-request"
LINK_S = 600
SESSION_S = 12 * 3600
EXPIRED = "Run `anabranch open` for a new link."


@dataclass(slots=True)
class Sessions:
    """Codes and cookies are signed with the token, so that they end with it and nothing is stored but which codes were used."""

    token: str
    clock: Callable[[], float] = time.time
    used: dict[str, float] = field(default_factory=dict)
    """Codes with their expiry. Each replica has its own: behind a load balancer a code can be used once at each."""

    def make_code(self) -> str:
        return self._signed("code", LINK_S)

    def exchange(self, code: str) -> str:
        """The cookie for a code. Raises Unauthenticated for a code that is forged, expired or used."""
        now = self.clock()
        self.used = {one: expiry for one, expiry in self.used.items() if expiry > now}
        expiry = self._expiry("code", code)
        if expiry is None or code in self.used:
            raise Unauthenticated("This login link has expired, or was used already.", remedy=EXPIRED)
        self.used[code] = expiry
        return self._signed("session", SESSION_S)

    def is_valid(self, cookie: str) -> bool:
        return self._expiry("session", cookie) is not None

    def _signed(self, kind: str, lifetime_s: float) -> str:
        stated = f"{int(self.clock() + lifetime_s)}.{secrets.token_urlsafe(16)}"
        return f"{stated}.{self._signature(kind, stated)}"

    def _expiry(self, kind: str, value: str) -> float | None:
        stated, _, signature = value.rpartition(".")
        if not hmac.compare_digest(self._signature(kind, stated).encode(), signature.encode()):
            return None
        expiry = float(stated.partition(".")[0])
        return expiry if expiry > self.clock() else None

    def _signature(self, kind: str, stated: str) -> str:
        return hmac.new(self.token.encode(), f"{kind} {stated}".encode(), hashlib.sha256).hexdigest()


class SessionCookie:
    """Presents the operator's token on behalf of a browser with a valid session. An Authorization header counts before a cookie.

    With an unsafe method the cookie counts only beside the header `X-Anabranch-Request`: a form cannot send it, and a script of another site only after
    a preflight, which is refused.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions | None) -> None:
        self.app, self.sessions = app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.sessions is not None and scope["type"] == "http" and self._has_session(scope, self.sessions):
            bearer = (b"authorization", f"Bearer {self.sessions.token}".encode())
            scope = {**scope, "headers": [*scope["headers"], bearer]}
        await self.app(scope, receive, send)

    def _has_session(self, scope: Scope, sessions: Sessions) -> bool:
        headers = dict(scope["headers"])
        # Ports share cookies, so a page of another server on this machine makes the browser send ours.
        if b"authorization" in headers or headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            return False
        if scope["method"] not in SAFE_METHODS and OWN_REQUEST not in headers:
            return False
        try:
            cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return False
        found = cookies.get(cookie_name(scope))
        return found is not None and sessions.is_valid(found.value)


def cookie_name(scope: Scope) -> str:
    """With the port: servers on one machine share their cookies."""
    server = scope.get("server")
    return f"anabranch_session_{server[1] if server else 0}"
