"""Authenticate every request before it reaches a route."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

import structlog
from cachetools import LRUCache
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import build_error_problem, build_problem
from schemas.errors import AnabranchError, Forbidden, InvalidRequest, Unauthenticated
from schemas.principals import Authenticator

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


@dataclass(slots=True)
class AcceptedCredentials:
    """LRU set of digests of credentials that were valid when last presented."""

    digests: LRUCache[bytes, None] = field(
        default_factory=lambda: LRUCache(MAX_ACCEPTED_CREDENTIALS)
    )

    def add(self, credential: str) -> None:
        self.digests[_hash_credential(credential)] = None

    def discard(self, credential: str) -> None:
        self.digests.pop(_hash_credential(credential), None)

    def __contains__(self, credential: str) -> bool:
        return _hash_credential(credential) in self.digests


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
        self.failures, self.admitted = FailureLimit(max_failures), AcceptedCredentials()

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
                and credential not in self.admitted
                and (wait_s := self.failures.get_wait_s(_get_address(scope)))
            ):
                await _build_too_many_failures(scope, wait_s)(scope, receive, send)
                return
            scope["principal"] = await self.authenticate(credential, tenant)
        except AnabranchError as error:
            await self._build_refusal(scope, error, credential)(scope, receive, send)
            return
        if credential is not None:
            self.admitted.add(credential)
        await self.app(scope, self._wrap_receive(receive, credential, tenant), send)

    def _build_refusal(
        self, scope: Scope, error: AnabranchError, credential: str | None
    ) -> ASGIApp:
        if isinstance(error, Unauthenticated):
            address = _get_address(scope)
            wait_s = self.failures.get_wait_s(address)
            log.warning(
                "authentication_failed",
                address=address,
                path=scope["path"],
                request_id=scope.get("request_id"),
                reason=error.detail,
            )
            self.count_failure()
            if credential is not None:
                # A revoked key must not keep its exemption from the limit.
                self.admitted.discard(credential)
                self.failures.record_failure(address)
                if wait_s is not None:
                    return _build_too_many_failures(scope, wait_s)
        elif isinstance(error, Forbidden):
            log.warning(
                "access_denied",
                address=_get_address(scope),
                path=scope["path"],
                request_id=scope.get("request_id"),
                reason=error.detail,
            )
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
