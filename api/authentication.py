"""Authenticates every request before a route sees it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.failures import FailureLimit
from api.problems import problem, problem_of
from schemas.errors import AnabranchError, Forbidden, InvalidRequest, Unauthenticated
from schemas.principals import Authenticator

log = structlog.get_logger("api")
OPEN_PATHS = ("/livez", "/readyz", "/openapi.json", "/docs", "/v1/signed")
"""Probes and the API's description, which hold nothing of any tenant; and signed links, which are credentials themselves."""
AUTHORIZATION, TENANT_HEADER = b"authorization", b"x-anabranch-tenant"
RECHECK_S = 0.8
"""While a request lasts its credential is checked again after so long, so that a revoked one reads no stream to its end."""
MAX_ADMITTED = 4096
COSTLY = "ab_"
"""What API keys begin with: the only credentials whose check takes noticeable time."""


@dataclass(slots=True)
class Admitted:
    """Digests of credentials that were valid when last presented."""

    digests: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def add(self, credential: str) -> None:
        digest = _digest(credential)
        self.digests[digest] = None
        self.digests.move_to_end(digest)
        if len(self.digests) > MAX_ADMITTED:
            self.digests.popitem(last=False)

    def discard(self, credential: str) -> None:
        self.digests.pop(_digest(credential), None)

    def __contains__(self, credential: str) -> bool:
        return _digest(credential) in self.digests


class Authentication:
    """Sets `scope["principal"]`, or answers 401, 403 or 429. An address with too many failures is answered 429 in place of 401, and its API keys are not
    looked at unless they were valid before: others behind the same address keep their access, and guesses cost nothing."""

    def __init__(self, app: ASGIApp, authenticate: Authenticator, max_failures: int, count_failure: Callable[[], None]) -> None:
        self.app, self.authenticate, self.count_failure = app, authenticate, count_failure
        self.failures, self.admitted = FailureLimit(max_failures), Admitted()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        credential: str | None = None
        try:
            credential = _bearer(_single(scope, AUTHORIZATION))
            tenant = _single(scope, TENANT_HEADER)
            if wait_s := self._wait_s(scope, credential):
                await _too_many(scope, wait_s)(scope, receive, send)
                return
            scope["principal"] = await self.authenticate(credential, tenant)
        except AnabranchError as error:
            await self._refuse(scope, error, credential)(scope, receive, send)
            return
        if credential is not None:
            self.admitted.add(credential)
        await self.app(scope, self._rechecking(receive, credential, tenant), send)

    def _wait_s(self, scope: Scope, credential: str | None) -> int | None:
        if credential is None or not credential.startswith(COSTLY) or credential in self.admitted:
            return None
        return self.failures.wait_s(_address(scope))

    def _refuse(self, scope: Scope, error: AnabranchError, credential: str | None) -> ASGIApp:
        if isinstance(error, Unauthenticated):
            address = _address(scope)
            wait_s = self.failures.wait_s(address)
            log.warning("authentication_failed", address=address, path=scope["path"], request_id=scope.get("request_id"), reason=error.detail)
            self.count_failure()
            if credential is not None:
                self.admitted.discard(credential)
                self.failures.note(address)
                if wait_s is not None:
                    return _too_many(scope, wait_s)
        elif isinstance(error, Forbidden):
            log.warning("access_denied", address=_address(scope), path=scope["path"], request_id=scope.get("request_id"), reason=error.detail)
        return problem_of(Request(scope), error)

    def _rechecking(self, receive: Receive, credential: str | None, tenant: str | None) -> Receive:
        """As `receive`, but the caller seems to hang up once its credential is no longer valid."""

        async def checked() -> Message:
            receiving = asyncio.ensure_future(receive())
            try:
                while True:
                    done, _ = await asyncio.wait({receiving}, timeout=RECHECK_S)
                    if done:
                        return receiving.result()
                    if not await self._is_valid(credential, tenant):
                        return {"type": "http.disconnect"}
            finally:
                receiving.cancel()

        return checked

    async def _is_valid(self, credential: str | None, tenant: str | None) -> bool:
        try:
            await self.authenticate(credential, tenant)
        except (Unauthenticated, Forbidden):
            return False
        except AnabranchError:
            # The database or the issuer is unavailable: that says nothing of the credential.
            return True
        return True


def _is_open(path: str) -> bool:
    return path == "/" or any(path == open_path or path.startswith(f"{open_path}/") for open_path in OPEN_PATHS)


def _single(scope: Scope, name: bytes) -> str | None:
    """The header's value. Raises InvalidRequest for several: a proxy and this server could each take another one."""
    values = [value for given, value in scope["headers"] if given == name]
    if len(values) > 1:
        raise InvalidRequest(f"The header {name.decode().title()} is given {len(values)} times.", remedy="Send it once.")
    return values[0].decode("latin-1") if values else None


def _bearer(header: str | None) -> str | None:
    """The credential (RFC 6750, section 2.1), or None without the header."""
    if header is None:
        return None
    scheme, _, credential = header.partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        raise Unauthenticated("The Authorization header is not of the form 'Bearer TOKEN'.")
    return credential.strip()


def _too_many(scope: Scope, wait_s: int) -> ASGIApp:
    detail = "Too many authentications from this address have failed."
    remedy = f"Repeat the request after {wait_s} s, with a valid credential."
    return problem(Request(scope), 429, "TOO_MANY_FAILURES", detail, remedy, {"Retry-After": str(wait_s)})


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _digest(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()
