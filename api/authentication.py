"""Authenticates every request before a route sees it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.problems import problem_of
from schemas.errors import AnabranchError, Unauthenticated
from schemas.principals import Authenticator

OPEN_PATHS = ("/livez", "/readyz", "/openapi.json", "/docs")
"""Probes and the API's description, which hold nothing of any tenant."""
TENANT_HEADER = b"x-anabranch-tenant"


class Authentication:
    """Sets `scope["principal"]`, or answers 401 or 403."""

    def __init__(self, app: ASGIApp, authenticate: Authenticator) -> None:
        self.app, self.authenticate = app, authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        tenant = headers.get(TENANT_HEADER)
        try:
            credential = _bearer(headers.get(b"authorization"))
            scope["principal"] = await self.authenticate(credential, tenant.decode("latin-1") if tenant else None)
        except AnabranchError as error:
            await problem_of(Request(scope), error)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path == "/" or any(path == open_path or path.startswith(f"{open_path}/") for open_path in OPEN_PATHS)


def _bearer(header: bytes | None) -> str | None:
    """The credential (RFC 6750, section 2.1), or None without the header."""
    if header is None:
        return None
    scheme, _, credential = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        raise Unauthenticated("The Authorization header is not of the form 'Bearer TOKEN'.")
    return credential.strip()
