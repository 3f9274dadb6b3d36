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

from engines.addresses import Address, is_public
from schemas.errors import AnabranchError, EngineUnavailable, ForbiddenAddress, LimitExceeded, UnreadableDocument
from schemas.ports.engines import Blobs, Fetched
from schemas.ports.sources import Revisited
from schemas.urls import redact_urls

T = TypeVar("T")
Receive = Callable[[httpx.Response, httpx.URL], Awaitable[T]]
SCHEMES = {"http": 80, "https": 443}
BUSY = frozenset({408, 425, 429})
GONE = frozenset({404, 410})
CONNECT_S = 10.0
SILENCE_S = 10.0
"""Without a byte from the server, after which a fetch ends."""
LONGEST_CONDITION = 1_000
"""Of a tag or a date that is said again; without it the document is sent once more."""
LONGEST_TYPE = 255


class HttpFetcher:
    """Each redirect is checked like the first address, and what a name resolved to is checked again when the connection is made.
    `allow` holds `host:port` pairs that are exempt; `timeout_s` bounds the whole download."""

    def __init__(self, blobs: Blobs, *, allow: frozenset[str] = frozenset(), max_bytes: int, timeout_s: float, max_redirects: int = 5) -> None:
        self._blobs, self._allow = blobs, allow
        self._max_bytes, self._timeout_s, self._max_redirects = max_bytes, timeout_s, max_redirects

    async def fetch(self, url: str, key_prefix: str) -> Fetched:
        return await self._asked(url, {}, lambda response, place: self._stored(response, place, key_prefix))

    async def revisit(self, url: str, key_prefix: str, *, etag: str | None, last_modified: str | None) -> Revisited:
        """A conditional request (RFC 9110, section 13). Raises what `fetch` raises, but for 404 and 410."""

        async def receive(response: httpx.Response, place: httpx.URL) -> Revisited:
            if response.status_code in GONE:
                return Revisited(gone=True)
            if response.status_code == 304 and conditions:
                return Revisited(etag=etag, last_modified=last_modified)
            fetched = await self._stored(response, place, key_prefix)
            return Revisited(fetched, etag=response.headers.get("etag"), last_modified=response.headers.get("last-modified"))

        told = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        conditions = {name: value for name, value in told.items() if value and value.isascii() and len(value) <= LONGEST_CONDITION}
        return await self._asked(url, conditions, receive)

    async def _asked(self, url: str, headers: Mapping[str, str], receive: Receive[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s), self._client() as client:
                return await self._followed(client, url, headers, receive)
        except TimeoutError as error:
            raise LimitExceeded(f"{url} took more than {self._timeout_s:g} s.", code="FETCH_TIMEOUT", remedy="Upload the file instead.") from error
        except (httpx.RequestError, httpx.InvalidURL, UnicodeError, SSRFProtectionError) as error:
            raise _translated(url, error) from error

    def _client(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            timeout=httpx.Timeout(self._timeout_s, connect=CONNECT_S, read=SILENCE_S),
            headers={"Accept-Encoding": "identity"},
        )
        return httpx_ssrf_protection(client, check_globally_reachable=False, custom_validator=self._admits, dns_cache_ttl=0)

    def _admits(self, host: str, address: Address, port: int) -> bool:
        return f"{host}:{port}" in self._allow or is_public(address)

    async def _followed(self, client: httpx.AsyncClient, url: str, headers: Mapping[str, str], receive: Receive[T]) -> T:
        place = httpx.URL(url)
        for _ in range(self._max_redirects + 1):
            await self._check(place)
            async with client.stream("GET", place, headers=headers) as response:
                if not response.has_redirect_location:
                    return await receive(response, place)
                place = place.join(response.headers["location"])
        raise LimitExceeded(
            f"{url} redirects more than {self._max_redirects} times.", code="TOO_MANY_REDIRECTS", remedy="Give the address where the file lies."
        )

    async def _check(self, place: httpx.URL) -> None:
        """Before anything is sent: the port of a refused address is not even knocked at."""
        if place.scheme not in SCHEMES:
            raise ForbiddenAddress(f"{place} is no http or https address.")
        port = SCHEMES[place.scheme] if place.port is None else place.port
        if not 0 < port < 2**16:
            raise ForbiddenAddress(f"{place} names a port that is none.")
        for address in await _addresses(place.host, port):
            if not self._admits(place.host, address, port):
                raise ForbiddenAddress(f"{place.host}:{port} is not a public address ({address}).")

    async def _stored(self, response: httpx.Response, place: httpx.URL, key_prefix: str) -> Fetched:
        _check_status(response, place)
        if (coding := response.headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
            # A small answer may decode into a text without end, and what was not asked for is not needed.
            remedy = "Serve it without Content-Encoding where the client does not accept one, or upload the file."
            raise UnreadableDocument(f"{place} answered with Content-Encoding {coding[:40]!r}, which was not asked for.", code="FETCH_FAILED", remedy=remedy)
        claimed = int(length) if (length := response.headers.get("content-length", "")).isdecimal() else 0
        if claimed > self._max_bytes:
            raise LimitExceeded(
                f"{place} is {claimed:,} bytes; {self._max_bytes:,} are allowed.", code="TOO_LARGE", remedy="Raise ANABRANCH_INGEST__MAX_BYTES."
            )
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        blob = await self._blobs.put_stream(
            key_prefix, _body(response), limit=self._max_bytes, media_type=media_type if 0 < len(media_type) <= LONGEST_TYPE else None
        )
        return Fetched(blob, redact_urls(str(place)), blob.media_type, _filename(response, place))


async def _addresses(host: str, port: int) -> list[Address]:
    """All that the name stands for; odd spellings of numbers (decimal, octal, hexadecimal) become numbers here."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            raise EngineUnavailable(f"{host} could not be looked up for now: {error.strerror}.", remedy="Check this machine's name server.") from error
        raise UnreadableDocument(f"There is no host {host!r}.", code="FETCH_FAILED", remedy="Check the address.") from error
    return [ip_address(entry[4][0]) for entry in found]


def _check_status(response: httpx.Response, place: httpx.URL) -> None:
    status = response.status_code
    if status >= 500 or status in BUSY:
        raise EngineUnavailable(f"{place} answered {status}.", remedy="The server is away; the fetch is tried again.")
    if status != 200:
        raise UnreadableDocument(f"{place} answered {status}.", code="FETCH_FAILED", remedy="Check that the address needs no sign-in and still exists.")


async def _body(response: httpx.Response) -> AsyncIterator[bytes]:
    async for chunk in response.aiter_raw():
        yield chunk


def _filename(response: httpx.Response, place: httpx.URL) -> str | None:
    """As the server calls it (RFC 6266), else the last part of the path; never with folders."""
    header = Message()
    header["content-disposition"] = response.headers.get("content-disposition", "")
    try:
        named = header.get_filename()
    except UnicodeError:  # in an encoding that takes it not
        named = None
    name = named or unquote(PurePosixPath(place.path).name)
    return PurePosixPath(name.replace("\\", "/").encode(errors="replace").decode()).name[:1024] or None


def _translated(url: str, error: Exception) -> AnabranchError:
    if isinstance(error, SSRFProtectionError):
        return ForbiddenAddress(f"{url} leads to an address that is not public: {error}.")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
        return ForbiddenAddress(f"{url[:500]!r} is no address: {error}.")
    if isinstance(error, httpx.ReadTimeout):
        return LimitExceeded(f"{url} sent nothing for {SILENCE_S:g} s.", code="FETCH_TIMEOUT", remedy="Upload the file instead.")
    if isinstance(error, httpx.DecodingError):
        return UnreadableDocument(f"{url[:500]!r} cannot be fetched: {error}.", code="FETCH_FAILED", remedy="Check the address.")
    return EngineUnavailable(f"{url} could not be fetched: {error or type(error).__name__}.", remedy="Check the network; the fetch is tried again.")
