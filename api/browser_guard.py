"""Protect the API from web pages: a browser can reach a loopback address on behalf of any page it
shows.

A page of another site can send plain forms (CSRF) and, after DNS rebinding, read responses. The
server therefore accepts only its own host names, and rejects unsafe methods from other origins.
`api.sessions` protects the browser's session.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import SECURITY_HEADERS, build_problem

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
DEFAULT_PORTS = {"http": 80, "https": 443}


class SecurityHeadersMiddleware:
    """Add the security headers to every response, unless a route sets its own value."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                present_names = {name.lower() for name, _ in headers}
                missing = [
                    pair
                    for pair in SECURITY_HEADERS.items()
                    if pair[0].lower().encode() not in present_names
                ]
                message["headers"] = [
                    *headers,
                    *((name.lower().encode(), value.encode()) for name, value in missing),
                ]
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
