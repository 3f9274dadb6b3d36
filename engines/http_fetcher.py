"""Requests to addresses that users name, with protection against SSRF: downloads, and web hooks.

Neither names, number spellings nor redirects reach private addresses.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from email.message import Message
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import unquote

import httpx
from httpx_secure import SSRFProtectionError, httpx_ssrf_protection

from engines.bounded_body import BodyTooLarge, UndecodableBody, decode_body, normalize_encoding
from schemas.errors import (
    AnabranchError,
    EngineUnavailable,
    ForbiddenAddress,
    LimitExceeded,
    UnreadableDocument,
    too_large_error,
)
from schemas.ports.engines import BlobStore, FetchedFile
from schemas.ports.sources import RevisitResult
from schemas.urls import redact_urls

# The ranges are our own because `ipaddress.is_global` changes between patch releases of Python
# (CVE-2024-4032 and later tables). Sources, as of November 2026: the IANA IPv4 and IPv6
# Special-Purpose Address Registries (RFC 6890), RFC 5771 and RFC 4291 (multicast), RFC 3879
# (site-local). Ranges that the registries call globally reachable (AS112, AMT, protocol anycast)
# are refused too: they host no documents.
IpAddress = IPv4Address | IPv6Address

REFUSED_NETWORKS = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT; metadata service of Alibaba Cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's virtual machine service, although the address is public
            "169.254.0.0/16",  # link-local; cloud metadata services
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # IETF protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays, deprecated
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and limited broadcast
            "::/128",  # unspecified
            "::1/128",  # loopback
            "::/96",  # IPv4-compatible, deprecated
            "::ffff:0:0:0/96",  # IPv4-translated (SIIT)
            "64:ff9b:1::/48",  # NAT64 of the local network
            "100::/64",  # discard
            "100:0:0:1::/64",  # dummy prefix
            "2001::/23",  # IETF protocol assignments: Teredo, ORCHID, benchmarks
            "2001:db8::/32",  # documentation
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fc00::/7",  # unique local
            "fe80::/10",  # link-local
            "fec0::/10",  # site-local, deprecated
            "ff00::/8",  # multicast
        ),
    )
)
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 range allocated to networks."""
MAPPED, NAT64 = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def is_public(address: IpAddress) -> bool:
    """Return whether the address and every IPv4 address embedded in it are public unicast."""
    if any(address in network for network in REFUSED_NETWORKS):
        return False
    if isinstance(address, IPv4Address):
        return True
    if address.scope_id is not None:
        return False
    carries_ipv4 = address in MAPPED or address in NAT64
    return (carries_ipv4 or address in GLOBAL_UNICAST) and all(
        map(is_public, find_embedded_ipv4(address))
    )


def find_embedded_ipv4(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield each IPv4 address that a tunnel or translator would extract from the address.

    Covers mapped addresses (RFC 4291), NAT64 (RFC 6052), 6to4 (RFC 3056), Teredo server and client
    (RFC 4380) and ISATAP (RFC 5214).
    """
    packed = address.packed
    if address in MAPPED or address in NAT64 or packed[8:12] in ISATAP:
        yield IPv4Address(packed[12:])
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


T = TypeVar("T")
ResponseHandler = Callable[[httpx.Response, httpx.URL], Awaitable[T]]
DEFAULT_PORTS = {"http": 80, "https": 443}
BUSY_STATUSES = frozenset({408, 425, 429})
GONE_STATUSES = frozenset({404, 410})
CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 10.0
"""Longest pause between two bytes from the server."""
MAX_VALIDATOR_LENGTH = 1_000
"""Longest ETag or Last-Modified sent back; the document is downloaded again where it is longer."""

MAX_MEDIA_TYPE_LENGTH = 255


class HttpFetcher:
    """Fetcher that checks every redirect, and every resolved address again on connecting.

    `allowed_hosts` are exempt `host:port` pairs. `timeout_s` bounds the whole download.
    """

    def __init__(
        self,
        blobs: BlobStore,
        *,
        allowed_hosts: frozenset[str] = frozenset(),
        max_bytes: int,
        timeout_s: float,
        max_redirects: int = 5,
    ) -> None:
        self._blobs, self._allowed_hosts = blobs, allowed_hosts
        self._max_bytes, self._timeout_s, self._max_redirects = max_bytes, timeout_s, max_redirects

    async def fetch(self, url: str, key_prefix: str) -> FetchedFile:
        return await self._request(
            url, {}, lambda response, final_url: self._store_body(response, final_url, key_prefix)
        )

    async def revisit(
        self, url: str, key_prefix: str, *, etag: str | None, last_modified: str | None
    ) -> RevisitResult:
        """Download again if changed (conditional request, RFC 9110, section 13).

        Raises the errors of `fetch`, except for 404 and 410, which return `is_gone`.
        """

        async def handle_response(response: httpx.Response, final_url: httpx.URL) -> RevisitResult:
            if response.status_code in GONE_STATUSES:
                return RevisitResult(is_gone=True)
            # A 304 without a condition in the request is the server's error.
            if response.status_code == 304 and conditions:
                return RevisitResult(etag=etag, last_modified=last_modified)
            fetched = await self._store_body(response, final_url, key_prefix)
            return RevisitResult(
                fetched,
                etag=response.headers.get("etag"),
                last_modified=response.headers.get("last-modified"),
            )

        validators = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        # httpx raises for a header value that is not ASCII.
        conditions = {
            name: value
            for name, value in validators.items()
            if value and value.isascii() and len(value) <= MAX_VALIDATOR_LENGTH
        }
        return await self._request(url, conditions, handle_response)

    async def check_url(self, url: str) -> None:
        """Raise ForbiddenAddress or UnreadableDocument unless `post` may send to the URL: its host
        is public, and reached by https unless it is allowed by name.
        """
        parsed = _parse_url(url)
        port = parsed.port or DEFAULT_PORTS.get(parsed.scheme, 0)
        if parsed.scheme != "https" and f"{parsed.host}:{port}" not in self._allowed_hosts:
            raise ForbiddenAddress(f"{parsed.host}:{port} is not reached by https.")
        await self._check_address(parsed)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Send the body and return the status. Redirects are not followed: they lead elsewhere than
        the address that was checked. Raises the errors of `fetch`.
        """

        async def send(client: httpx.AsyncClient) -> int:
            await self.check_url(url)
            # Only the status counts: the body of the reply is not read.
            async with client.stream("POST", url, content=body, headers=headers) as response:
                return response.status_code

        return await self._with_client(url, send)

    async def _request(
        self, url: str, headers: Mapping[str, str], handler: ResponseHandler[T]
    ) -> T:
        return await self._with_client(
            url, lambda client: self._follow_redirects(client, url, headers, handler)
        )

    async def _with_client(self, url: str, use: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
        try:
            # httpx limits single reads only; a server may send one byte at a time.
            async with asyncio.timeout(self._timeout_s), self._create_client() as client:
                return await use(client)
        except TimeoutError as error:
            raise LimitExceeded(
                f"{url} took more than {self._timeout_s:g} s.",
                code="FETCH_TIMEOUT",
                remedy="Upload the file instead.",
            ) from error
        except (httpx.RequestError, httpx.InvalidURL, UnicodeError, SSRFProtectionError) as error:
            raise _translate_error(url, error) from error

    def _create_client(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,  # a proxy would connect to addresses that are not checked here
            verify=_create_ssl_context(),
            timeout=httpx.Timeout(self._timeout_s, connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
            headers={"Accept-Encoding": "identity"},
        )
        return httpx_ssrf_protection(
            client,
            # Replaced by `is_public`; see REFUSED_NETWORKS.
            check_globally_reachable=False,
            custom_validator=self._is_allowed,
            # Each connection resolves and checks the name again, against DNS rebinding.
            dns_cache_ttl=0,
        )

    def _is_allowed(self, host: str, address: IpAddress, port: int) -> bool:
        return f"{host}:{port}" in self._allowed_hosts or is_public(address)

    async def _follow_redirects(
        self,
        client: httpx.AsyncClient,
        url: str,
        headers: Mapping[str, str],
        handler: ResponseHandler[T],
    ) -> T:
        current_url = httpx.URL(url)
        for _ in range(self._max_redirects + 1):
            # On every hop: a public server may redirect to a private address.
            await self._check_address(current_url)
            async with client.stream("GET", current_url, headers=headers) as response:
                if not response.has_redirect_location:
                    _reject_substitute(httpx.URL(url), current_url)
                    return await handler(response, current_url)
                current_url = current_url.join(response.headers["location"])
        raise LimitExceeded(
            f"{url} redirects more than {self._max_redirects} times.",
            code="TOO_MANY_REDIRECTS",
            remedy="Use the final URL of the file.",
        )

    async def _check_address(self, url: httpx.URL) -> None:
        """Raise ForbiddenAddress before any connection is attempted."""
        if url.scheme not in DEFAULT_PORTS:
            raise ForbiddenAddress(f"{url} is not an http or https URL.")
        port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
        if not 0 < port < 2**16:
            raise ForbiddenAddress(f"{url} has an invalid port.")
        for address in await _resolve_host(url.host, port):
            if not self._is_allowed(url.host, address, port):
                raise ForbiddenAddress(f"{url.host}:{port} is not a public address ({address}).")

    async def _store_body(
        self, response: httpx.Response, url: httpx.URL, key_prefix: str
    ) -> FetchedFile:
        status = response.status_code
        if status >= 500 or status in BUSY_STATUSES:
            raise EngineUnavailable(
                f"{url} answered {status}.", remedy="Check the server; the download is retried."
            )
        if status != 200:
            raise UnreadableDocument(
                f"{url} answered {status}.",
                code="FETCH_FAILED",
                remedy="Check that the URL exists and needs no sign-in.",
            )
        try:
            encoding = normalize_encoding(response.headers.get("content-encoding"))
        except UndecodableBody as error:
            raise _make_undecodable_error(url, error) from error
        declared_bytes = (
            int(length) if (length := response.headers.get("content-length", "")).isdecimal() else 0
        )
        # Refused before the body; `limit` below applies to bodies without a length.
        if declared_bytes > self._max_bytes:
            raise too_large_error(self._max_bytes, declared_bytes)
        media_type = _extract_media_type(response.headers.get("content-type", ""))
        try:
            blob = await self._blobs.put_stream(
                key_prefix,
                # Raw, and decoded in bounded pieces: some servers compress although they were asked
                # not to, and a small reply may decompress to gigabytes.
                decode_body(response.aiter_raw(), encoding, self._max_bytes),
                limit=self._max_bytes,
                media_type=media_type if 0 < len(media_type) <= MAX_MEDIA_TYPE_LENGTH else None,
            )
        except BodyTooLarge as error:
            raise too_large_error(self._max_bytes) from error
        except UndecodableBody as error:
            raise _make_undecodable_error(url, error) from error
        disposition = response.headers.get("content-disposition", "")
        return FetchedFile(
            blob, redact_urls(str(url)), blob.media_type, extract_filename(disposition, url.path)
        )


def _parse_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
        _ = parsed.host  # decoded on use
        return parsed
    except (httpx.InvalidURL, UnicodeError) as error:
        raise _translate_error(url, error) from error


def _reject_substitute(url: httpx.URL, final_url: httpx.URL) -> None:
    """Raise UnreadableDocument where a redirect led to another page than the one asked for.

    The page would replace the document. A sign-in page gets the address to return to (OAuth 2.0,
    CAS and the login views of web frameworks do so), and servers without a status for deleted
    pages redirect to the front page (a "soft 404").
    """
    if final_url.path == url.path:
        return
    return_addresses = (str(url), url.path, url.raw_path.decode("ascii"))
    # A path of `/` is too common a value to be an address.
    if any(
        value in return_addresses and value != "/" for _, value in final_url.params.multi_items()
    ):
        raise UnreadableDocument(
            f"{url} redirects to {final_url.copy_with(query=None)}, which asks to sign in.",
            code="FETCH_FAILED",
            remedy="Use a URL that needs no sign-in, or upload the file.",
        )
    if final_url.path == "/" and not final_url.query:
        raise UnreadableDocument(
            f"{url} redirects to the front page {final_url}, as for a page that is deleted.",
            code="FETCH_FAILED",
            remedy="Check that the page exists; use the URL of the front page to index that.",
        )


def _extract_media_type(content_type: str) -> str:
    """Return the media type with its `charset`, which a page need not repeat."""
    media_type, _, parameters = content_type.lower().partition(";")
    media_type = media_type.strip()
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", parameters)
    is_text = media_type.startswith("text/") or media_type.endswith(("xml", "json"))
    return f"{media_type}; charset={charset[1]}" if charset and is_text else media_type


@cache
def _create_ssl_context() -> ssl.SSLContext:
    # Shared by all downloads: loading the certificates takes some 20 ms of CPU.
    return httpx.create_ssl_context(trust_env=False)


async def _resolve_host(host: str, port: int) -> list[IpAddress]:
    """Return every address of the host; reads decimal, octal and hexadecimal spellings, too."""
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        # A temporary failure of the name server, unlike an unknown host.
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            raise EngineUnavailable(
                f"Host {host!r} could not be resolved: {error.strerror}.",
                remedy="Check this machine's name server.",
            ) from error
        raise UnreadableDocument(
            f"Host {host!r} does not exist.", code="FETCH_FAILED", remedy="Check the URL."
        ) from error
    return [ip_address(entry[4][0]) for entry in entries]


def _make_undecodable_error(url: httpx.URL, error: UndecodableBody) -> UnreadableDocument:
    return UnreadableDocument(
        f"The reply of {url} cannot be decoded: {error}.",
        code="FETCH_FAILED",
        remedy="Make the server honor Accept-Encoding, or upload the file.",
    )


def _translate_error(url: str, error: Exception) -> AnabranchError:
    if isinstance(error, SSRFProtectionError):
        return ForbiddenAddress(f"{url} resolves to an address that is not public: {error}.")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
        return ForbiddenAddress(f"Invalid URL {url[:500]!r}: {error}.")
    if isinstance(error, httpx.ReadTimeout):
        return LimitExceeded(
            f"{url} sent nothing for {READ_TIMEOUT_S:g} s.",
            code="FETCH_TIMEOUT",
            remedy="Upload the file instead.",
        )
    if isinstance(error, httpx.DecodingError):
        return UnreadableDocument(
            f"{url[:500]!r} could not be fetched: {error}.",
            code="FETCH_FAILED",
            remedy="Check the URL.",
        )
    return EngineUnavailable(
        f"{url} could not be fetched: {error or type(error).__name__}.",
        remedy="Check the network; the download is retried.",
    )


MAX_HEADER_LENGTH = 1_024
"""`email.message` takes quadratic time. Real headers are far shorter."""


def extract_filename(disposition: str, path: str) -> str | None:
    """Return the name in Content-Disposition (RFC 6266), else the last segment of the path."""
    header = Message()
    header["content-disposition"] = disposition[:MAX_HEADER_LENGTH]
    try:
        header_filename = header.get_filename()
    except (UnicodeError, ValueError):  # the header declares an encoding that its bytes do not fit
        header_filename = None
    name = header_filename or unquote(PurePosixPath(path).name)
    return (
        PurePosixPath(name.replace("\\", "/").encode(errors="replace").decode()).name[:1024] or None
    )
