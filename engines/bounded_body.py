"""Bodies of HTTP replies, bounded in bytes before and after decompression."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2

PIECE_BYTES = 64 * 1024
ENCODINGS = {"gzip": 47, "x-gzip": 47, "deflate": 47}
"""Encodings that can be decoded piece by piece, with the `wbits` of zlib: 47 detects the header."""
RAW_DEFLATE = -15
DECODABLE_HEADERS = {"Accept-Encoding": "gzip, deflate"}
"""Clients would otherwise ask for every encoding that a library of this process decodes."""


class BodyTooLarge(Exception):
    """A body, decompressed, has more bytes than allowed."""


class UndecodableBody(Exception):
    """A body has an unknown encoding, or is damaged."""


def normalize_encoding(header: str | None) -> str | None:
    """Return the content encoding, None for identity. Raises UndecodableBody."""
    encoding = (header or "identity").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ENCODINGS:
        raise UndecodableBody(f"it has the Content-Encoding {encoding[:40]!r}")
    return encoding


async def decode_body(
    chunks: AsyncIterator[bytes], encoding: str | None, max_bytes: int
) -> AsyncIterator[bytes]:
    """Yield the decoded body in pieces.

    Raises BodyTooLarge or UndecodableBody.
    """
    n_bytes = 0
    decoder = zlib.decompressobj(ENCODINGS[encoding]) if encoding else None
    is_first = True
    async for chunk in chunks:
        data = chunk
        while data:
            if decoder is None:
                piece, data = data, b""
            else:
                # Servers disagree on whether `deflate` has a header (RFC 9110, section 8.4.1.2).
                if is_first and encoding == "deflate" and data[0] & 15 != 8:
                    decoder = zlib.decompressobj(RAW_DEFLATE)
                try:
                    piece = decoder.decompress(data, PIECE_BYTES)
                except zlib.error as error:
                    raise UndecodableBody(f"it is not valid {encoding}: {error}") from error
                data = decoder.unconsumed_tail
                if decoder.eof:
                    # A gzip file may have several members (RFC 1952).
                    data = decoder.unused_data
                    decoder = zlib.decompressobj(ENCODINGS["gzip"])
            is_first = False
            n_bytes += len(piece)
            if n_bytes > max_bytes:
                raise BodyTooLarge(f"it has more than {max_bytes:,} bytes")
            if piece:
                yield piece


def bound_replies(max_bytes: int) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return an event hook for responses, which bounds their bodies.

    Reading a larger body raises BodyTooLarge, an unknown encoding UndecodableBody.
    """

    async def bound(response: httpx2.Response) -> None:
        encoding = normalize_encoding(response.headers.get("content-encoding"))
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(stream, encoding, max_bytes)
        # It is decoded here: the client would decompress a whole chunk at once.
        response.headers.pop("content-encoding", None)

    return bound


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, encoding: str | None, limit: int) -> None:
        self._stream, self._encoding, self._limit = stream, encoding, limit

    def __aiter__(self) -> AsyncIterator[bytes]:
        return decode_body(aiter(self._stream), self._encoding, self._limit)

    async def aclose(self) -> None:
        await self._stream.aclose()
