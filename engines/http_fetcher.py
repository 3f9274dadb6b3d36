"""Documents by URL, from public addresses only: neither a name, nor a spelling of a number, nor a redirect leads inside."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.message import Message
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import unquote

import httpx
from httpx_secure import SSRFProtectionError, httpx_ssrf_protection

from engines.addresses import IpAddress, is_public
from schemas.errors import AnabranchError, EngineUnavailable, ForbiddenAddress, LimitExceeded, UnreadableDocument
from schemas.ports.engines import BlobStore, FetchedFile
from schemas.ports.sources import RevisitResult
from schemas.urls import redact_urls

T = TypeVar("T")
ResponseHandler = Callable[[httpx.Response, httpx.URL], Awaitable[T]]
DEFAULT_PORTS = {"http": 80, "https": 443}
BUSY_STATUSES = frozenset({408, 425, 429})
GONE_STATUSES = frozenset({404, 410})
CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 10.0
"""Without a byte from the server, after which a fetch ends."""
MAX_VALIDATOR_LENGTH = 1_000
"""Of a tag or a date that is said again; without it the document is sent once more."""
MAX_MEDIA_TYPE_LENGTH = 255


class HttpFetcher:
    """Each redirect is checked like the first address, and what a name resolved to is checked again when the connection is made.
    `allow` holds `host:port` pairs that are exempt; `timeout_s` bounds the whole download."""

    def __init__(self, blobs: BlobStore, *, allowed_hosts: frozenset[str] = frozenset(), max_bytes: int, timeout_s: float, max_redirects: int = 5) -> None:
        self._blobs, self._allowed_hosts = blobs, allowed_hosts
        self._max_bytes, self._timeout_s, self._max_redirects = max_bytes, timeout_s, max_redirects

    async def fetch(self, url: str, key_prefix: str) -> FetchedFile:
        return await self._request(url, {}, lambda response, place: self._store_body(response, place, key_prefix))

    async def revisit(self, url: str, key_prefix: str, *, etag: str | None, last_modified: str | None) -> RevisitResult:
        """A conditional request (RFC 9110, section 13). Raises what `fetch` raises, but for 404 and 410."""

        async def receive(response: httpx.Response, final_url: httpx.URL) -> RevisitResult:
            if response.status_code in GONE_STATUSES:
                return RevisitResult(is_gone=True)
            if response.status_code == 304 and conditions:
                return RevisitResult(etag=etag, last_modified=last_modified)
            fetched = await self._store_body(response, final_url, key_prefix)
            return RevisitResult(fetched, etag=response.headers.get("etag"), last_modified=response.headers.get("last-modified"))

        validators = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        conditions = {name: value for name, value in validators.items() if value and value.isascii() and len(value) <= MAX_VALIDATOR_LENGTH}
        return await self._request(url, conditions, receive)

    async def _request(self, url: str, headers: Mapping[str, str], handler: ResponseHandler[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s), self._create_client() as client:
                return await self._follow_redirects(client, url, headers, handler)
        except TimeoutError as error:
            raise LimitExceeded(f"{url} took more than {self._timeout_s:g} s.", code="FETCH_TIMEOUT", remedy="Upload the file instead.") from error
        except (httpx.RequestError, httpx.InvalidURL, UnicodeError, SSRFProtectionError) as error:
            raise _translate_error(url, error) from error

    def _create_client(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            timeout=httpx.Timeout(self._timeout_s, connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
            headers={"Accept-Encoding": "identity"},
        )
        return httpx_ssrf_protection(client, check_globally_reachable=False, custom_validator=self._is_allowed, dns_cache_ttl=0)

    def _is_allowed(self, host: str, address: IpAddress, port: int) -> bool:
        return f"{host}:{port}" in self._allowed_hosts or is_public(address)

    async def _follow_redirects(self, client: httpx.AsyncClient, url: str, headers: Mapping[str, str], handler: ResponseHandler[T]) -> T:
        current_url = httpx.URL(url)
        for _ in range(self._max_redirects + 1):
            await self._check_address(current_url)
            async with client.stream("GET", current_url, headers=headers) as response:
                if not response.has_redirect_location:
                    return await handler(response, current_url)
                current_url = current_url.join(response.headers["location"])
        raise LimitExceeded(
            f"{url} redirects more than {self._max_redirects} times.", code="TOO_MANY_REDIRECTS", remedy="Give the address where the file lies."
        )

    async def _check_address(self, url: httpx.URL) -> None:
        """Before anything is sent: the port of a refused address is not even knocked at."""
        if url.scheme not in DEFAULT_PORTS:
            raise ForbiddenAddress(f"{url} is no http or https address.")
        port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
        if not 0 < port < 2**16:
            raise ForbiddenAddress(f"{url} names a port that is none.")
        for address in await _resolve_host(url.host, port):
            if not self._is_allowed(url.host, address, port):
                raise ForbiddenAddress(f"{url.host}:{port} is not a public address ({address}).")

    async def _store_body(self, response: httpx.Response, url: httpx.URL, key_prefix: str) -> FetchedFile:
        _check_status(response, url)
        if (content_encoding := response.headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
            # A small answer may decode into a text without end, and what was not asked for is not needed.
            remedy = "Serve it without Content-Encoding where the client does not accept one, or upload the file."
            raise UnreadableDocument(
                f"{url} answered with Content-Encoding {content_encoding[:40]!r}, which was not asked for.", code="FETCH_FAILED", remedy=remedy
            )
        declared_bytes = int(length) if (length := response.headers.get("content-length", "")).isdecimal() else 0
        if declared_bytes > self._max_bytes:
            raise LimitExceeded(
                f"{url} is {declared_bytes:,} bytes; {self._max_bytes:,} are allowed.", code="TOO_LARGE", remedy="Raise ANABRANCH_INGEST__MAX_BYTES."
            )
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        blob = await self._blobs.put_stream(
            key_prefix, _iter_body(response), limit=self._max_bytes, media_type=media_type if 0 < len(media_type) <= MAX_MEDIA_TYPE_LENGTH else None
        )
        return FetchedFile(blob, redact_urls(str(url)), blob.media_type, _extract_filename(response, url))


async def _resolve_host(host: str, port: int) -> list[IpAddress]:
    """All that the name stands for; odd spellings of numbers (decimal, octal, hexadecimal) become numbers here."""
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            raise EngineUnavailable(f"{host} could not be looked up for now: {error.strerror}.", remedy="Check this machine's name server.") from error
        raise UnreadableDocument(f"There is no host {host!r}.", code="FETCH_FAILED", remedy="Check the address.") from error
    return [ip_address(entry[4][0]) for entry in entries]


def _check_status(response: httpx.Response, url: httpx.URL) -> None:
    status = response.status_code
    if status >= 500 or status in BUSY_STATUSES:
        raise EngineUnavailable(f"{url} answered {status}.", remedy="The server is away; the fetch is tried again.")
    if status != 200:
        raise UnreadableDocument(f"{url} answered {status}.", code="FETCH_FAILED", remedy="Check that the address needs no sign-in and still exists.")


async def _iter_body(response: httpx.Response) -> AsyncIterator[bytes]:
    async for chunk in response.aiter_raw():
        yield chunk


def _extract_filename(response: httpx.Response, url: httpx.URL) -> str | None:
    """As the server calls it (RFC 6266), else the last part of the path; never with folders."""
    header = Message()
    header["content-disposition"] = response.headers.get("content-disposition", "")
    try:
        header_filename = header.get_filename()
    except UnicodeError:  # in an encoding that takes it not
        header_filename = None
    name = header_filename or unquote(PurePosixPath(url.path).name)
    return PurePosixPath(name.replace("\\", "/").encode(errors="replace").decode()).name[:1024] or None


def _translate_error(url: str, error: Exception) -> AnabranchError:
    if isinstance(error, SSRFProtectionError):
        return ForbiddenAddress(f"{url} leads to an address that is not public: {error}.")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
        return ForbiddenAddress(f"{url[:500]!r} is no address: {error}.")
    if isinstance(error, httpx.ReadTimeout):
        return LimitExceeded(f"{url} sent nothing for {READ_TIMEOUT_S:g} s.", code="FETCH_TIMEOUT", remedy="Upload the file instead.")
    if isinstance(error, httpx.DecodingError):
        return UnreadableDocument(f"{url[:500]!r} cannot be fetched: {error}.", code="FETCH_FAILED", remedy="Check the address.")
    return EngineUnavailable(f"{url} could not be fetched: {error or type(error).__name__}.", remedy="Check the network; the fetch is tried again.")
