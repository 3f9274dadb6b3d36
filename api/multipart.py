"""Parse a multipart form as a stream (RFC 7578).

An upload is neither held in memory nor copied to disk twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from schemas.errors import InvalidRequest, LimitExceeded
from schemas.values import BlobRef

MAX_FIELD_BYTES = 1024 * 1024
MAX_PARTS = 64


@dataclass
class PartHeader:
    headers: dict[str, str] = field(default_factory=dict)

    @cached_property
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
class PartData:
    data: bytes


class PartEnd:
    """End of a part."""


PartEvent = PartHeader | PartData | PartEnd


class _PartEventCollector:
    """Collects the parser's callbacks as events until the next read."""

    def __init__(self, boundary: bytes) -> None:
        self.events: list[PartEvent] = []
        self.part = PartHeader()
        self.header_name, self.header_value = b"", b""
        self.finished = False
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": lambda: self.events.append(self.part),
                "on_part_data": lambda data, start, end: self.events.append(
                    PartData(data[start:end])
                ),
                "on_part_end": lambda: self.events.append(PartEnd()),
                "on_end": self._on_end,
            },
        )

    def feed(self, chunk: bytes) -> list[PartEvent]:
        self.events = []
        self.parser.write(chunk)
        return self.events

    def _on_part_begin(self) -> None:
        self.part = PartHeader()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        # The parser may split a header between two chunks of the body.
        self.header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self.header_value += data[start:end]

    def _on_header_end(self) -> None:
        self.part.headers[self.header_name.decode("latin-1").lower()] = self.header_value.decode(
            "latin-1"
        )
        self.header_name, self.header_value = b"", b""

    def _on_end(self) -> None:
        self.finished = True


async def parse_parts(
    content_type: str, chunks: AsyncIterator[bytes]
) -> AsyncGenerator[PartEvent, None]:
    """Yield the events of the form. Raises InvalidRequest for an incomplete or malformed form."""
    _, options = parse_options_header(content_type)
    if not options.get(b"boundary"):
        raise InvalidRequest(
            "The multipart form has no boundary.",
            remedy="Let your HTTP client set the Content-Type header.",
        )
    try:
        collector = _PartEventCollector(options[b"boundary"])
        async for chunk in chunks:
            for event in collector.feed(chunk):
                yield event
    except FormParserError as error:
        raise InvalidRequest(
            f"Malformed multipart form: {error}.", remedy="Let your HTTP client encode the form."
        ) from error
    # Half a file must not pass for the whole one when a connection breaks off.
    if not collector.finished:
        raise InvalidRequest("The multipart form is incomplete.", remedy="Send it again.")


@dataclass(slots=True)
class MultipartForm:
    fields: dict[str, list[str]] = field(default_factory=dict)
    upload: BlobRef | None = None
    filename: str | None = None
    media_type: str | None = None


StoreUpload = Callable[[AsyncIterator[bytes], str | None], Awaitable[BlobRef]]


async def read_form(
    content_type: str, chunks: AsyncIterator[bytes], store: StoreUpload
) -> MultipartForm:
    """Parse the form; `store` receives its one file (field `file`) as it arrives."""
    form, n_parts = MultipartForm(), 0
    # Closes the generator at once when the form is refused halfway.
    async with aclosing(parse_parts(content_type, chunks)) as stream:
        async for event in stream:
            if not isinstance(event, PartHeader):
                continue
            n_parts += 1
            if n_parts > MAX_PARTS:
                raise LimitExceeded(
                    f"The form has more than {MAX_PARTS} parts.",
                    remedy="Send one document per request.",
                )
            if event.name != "file":
                text = await _read_text_field(event, stream)
                form.fields.setdefault(event.name, []).append(text)
                continue
            if form.upload is not None:
                raise InvalidRequest(
                    "The form has several files.", remedy="Send one document per request."
                )
            form.filename, form.media_type = event.filename, event.headers.get("content-type")
            # Streamed: `store` consumes the part's data from the parser.
            form.upload = await store(_iterate_part_data(stream), form.media_type)
    return form


async def _iterate_part_data(stream: AsyncIterator[PartEvent]) -> AsyncIterator[bytes]:
    async for event in stream:
        if isinstance(event, PartEnd):
            return
        if isinstance(event, PartData):
            yield event.data


async def _read_text_field(part: PartHeader, stream: AsyncIterator[PartEvent]) -> str:
    value = b""
    async for chunk in _iterate_part_data(stream):
        value += chunk
        if len(value) > MAX_FIELD_BYTES:
            raise LimitExceeded(
                f"Form field {part.name} exceeds {MAX_FIELD_BYTES} bytes.",
                remedy="Send the document as the field `file`.",
            )
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"Form field {part.name} is not UTF-8.", remedy="Encode form fields as UTF-8."
        ) from None
