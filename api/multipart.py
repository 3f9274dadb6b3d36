"""A multipart form as a stream (RFC 7578): files are handed on while they come, so that no upload is held in memory or copied to a second disk file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from schemas.errors import InvalidRequest, LimitExceeded
from schemas.values import BlobRef

MAX_FIELD_BYTES = 1024 * 1024
MAX_PARTS = 64


@dataclass(slots=True)
class Part:
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def disposition(self) -> dict[str, str]:
        _, options = parse_options_header(self.headers.get("content-disposition", ""))
        return {name.decode(): value.decode("utf-8", "replace") for name, value in options.items()}

    @property
    def name(self) -> str:
        return self.disposition.get("name", "")

    @property
    def filename(self) -> str | None:
        return self.disposition.get("filename")


@dataclass(frozen=True, slots=True)
class Data:
    body: bytes


class End:
    """Of a part."""


Piece = Part | Data | End


class _Collector:
    """The parser's callbacks, gathered until the next read."""

    def __init__(self, boundary: bytes) -> None:
        self.pieces: list[Piece] = []
        self.part = Part()
        self.header_name, self.header_value = b"", b""
        self.finished = False
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": lambda: self.pieces.append(self.part),
                "on_part_data": lambda data, start, end: self.pieces.append(Data(data[start:end])),
                "on_part_end": lambda: self.pieces.append(End()),
                "on_end": self._end,
            },
        )

    def feed(self, chunk: bytes) -> list[Piece]:
        self.pieces = []
        self.parser.write(chunk)
        return self.pieces

    def _begin(self) -> None:
        self.part = Part()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self.header_name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self.header_value += data[start:end]

    def _header_end(self) -> None:
        self.part.headers[self.header_name.decode("latin-1").lower()] = self.header_value.decode("latin-1")
        self.header_name, self.header_value = b"", b""

    def _end(self) -> None:
        self.finished = True


async def pieces(content_type: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[Piece, None]:
    """Raises InvalidRequest for a body that is no complete multipart form."""
    _, options = parse_options_header(content_type)
    if not options.get(b"boundary"):
        raise InvalidRequest("the multipart form names no boundary", remedy="Let your HTTP client write the Content-Type header.")
    try:
        collector = _Collector(options[b"boundary"])
        async for chunk in chunks:
            for piece in collector.feed(chunk):
                yield piece
    except FormParserError as error:
        raise InvalidRequest(f"the multipart form cannot be read: {error}", remedy="Let your HTTP client write the form.") from error
    if not collector.finished:
        raise InvalidRequest("the multipart form ends too early", remedy="Send it again.")


@dataclass(slots=True)
class Form:
    fields: dict[str, list[str]] = field(default_factory=dict)
    upload: BlobRef | None = None
    filename: str | None = None
    media_type: str | None = None


Store = Callable[[AsyncIterator[bytes], str | None], Awaitable[BlobRef]]


async def read_form(content_type: str, chunks: AsyncIterator[bytes], store: Store) -> Form:
    """The form, with its one file (field `file`) stored by `store` while it came."""
    form, count = Form(), 0
    async with aclosing(pieces(content_type, chunks)) as stream:
        async for piece in stream:
            if not isinstance(piece, Part):
                continue
            count += 1
            if count > MAX_PARTS:
                raise LimitExceeded(f"the form has more than {MAX_PARTS} parts", remedy="Send one document a request.")
            await _take(piece, stream, form, store)
    return form


async def _take(part: Part, stream: AsyncIterator[Piece], form: Form, store: Store) -> None:
    if part.name == "file":
        if form.upload is not None:
            raise InvalidRequest("the form has two files", remedy="Send one document a request.")
        form.filename, form.media_type = part.filename, part.headers.get("content-type")
        form.upload = await store(_body(stream), form.media_type)
        return
    form.fields.setdefault(part.name, []).append(await _text(part, stream))


async def _body(stream: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    async for piece in stream:
        if isinstance(piece, End):
            return
        if isinstance(piece, Data):
            yield piece.body


async def _text(part: Part, stream: AsyncIterator[Piece]) -> str:
    value = b""
    async for chunk in _body(stream):
        value += chunk
        if len(value) > MAX_FIELD_BYTES:
            raise LimitExceeded(f"form field {part.name} is over {MAX_FIELD_BYTES} bytes", remedy="Send the document as the field `file`.")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"form field {part.name} is not UTF-8") from None
