"""Values in events and rows.

All are immutable; offsets count Unicode code points of the document's Markdown.
"""

from __future__ import annotations

import gzip
import re
from bisect import bisect_left, bisect_right
from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from schemas.models import Described


def check_language(tag: str) -> str:
    """Return the tag. Raises ValueError if it does not denote a known language."""
    # Imported late: most processes never check a language.
    from langcodes import tag_is_valid

    if "_" in tag or not tag_is_valid(tag):
        raise ValueError(
            f"{tag!r} is not a known language; use a BCP 47 tag such as en, pt-BR or zh-Hant"
        )
    return tag


_DIRECTION_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def drop_direction_controls(name: str) -> str:
    """Return the name without embeddings, overrides and isolates of the Unicode bidi algorithm.

    Shown with them, invoice\\u202efdp.exe looks like invoiceexe.pdf (CVE-2021-42574).
    """
    return _DIRECTION_CONTROLS.sub("", name)


def _clean_name(name: object) -> object:
    if not isinstance(name, str):
        return name
    # One of spaces alone would be an invisible heading.
    return cleaned if (cleaned := drop_direction_controls(name)).strip() else ""


# Before, so that bounds are those of a string.
DisplayName = Annotated[str, BeforeValidator(_clean_name)]
"""A title or file name, shown as it is stored. Whoever receives one declares it as this type."""

Language = Annotated[
    str, Field(max_length=35, description="BCP 47 tag."), AfterValidator(check_language)
]


Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 as shares of the page's width and height, with the origin at the top left."""

READER_PATTERN = r"^(everyone|(user|group):[^\s\x00-\x1f\x7f]{1,200})$"
ReaderName = Annotated[str, Field(pattern=READER_PATTERN, max_length=206)]
"""`user:NAME`, `group:NAME`, or `everyone` for all callers of the tenant."""
Readers = Annotated[list[ReaderName], Field(max_length=1000)]
"""Users and groups that may read a document. With an empty list, only callers without a reader
limit may read it.
"""

Order = Annotated[
    list[int],
    Field(
        min_length=1,
        description=(
            "Position among the document's revisions. Compared from the left; the greatest wins."
        ),
    ),
]


IdentifierKind = Literal["ssn", "email", "phone", "card", "cpf", "cnpj"]
"""A kind of personal identifier that can be recognized by its form."""

MAX_NAME_BYTES = 1024


def _check_name_bytes(name: str) -> str:
    if (n_bytes := len(name.encode(errors="replace"))) > MAX_NAME_BYTES:
        raise ValueError(f"{n_bytes} bytes of UTF-8 exceed the limit of {MAX_NAME_BYTES}")
    return name


ExternalId = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_BYTES), AfterValidator(_check_name_bytes)
]


class Value(Described):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RawCell(Value):
    """A table cell at `[char_start, char_end)` of the Markdown that shows a stored value otherwise.

    A cell that shows `12.5M` may store 12500000.
    """

    char_start: int = Field(description="Offset of the cell's first character.")
    char_end: int = Field(description="Offset after the cell's last character.")
    raw_value: str
    """The stored value: a decimal number such as `0.125` for `12.5 %`, or a date or time in ISO
    8601.
    """


class Span(Value):
    """A range `[char_start, char_end)` in a document's Markdown.

    Depending on the format, it also has the position on the page, in the HTML, in the sheet or in
    the recording.
    """

    char_start: int = Field(description="Offset of the first character.")
    char_end: int = Field(description="Offset after the last character.")
    page: int | None = Field(None, description="Page number, from 1.")
    box: Box | None = None
    """Position on the page: x0, y0, x1, y1 as shares of the page's width and height, with the
    origin at the top left.
    """
    element: str | None = Field(None, description="Id of the nearest HTML element that has one.")
    sheet: str | None = Field(None, description="Name of the sheet.")
    cells: str | None = Field(None, description="Cell range in A1 notation, such as `B2:D7`.")
    start_s: float | None = Field(None, description="Start in a recording, in seconds.")
    end_s: float | None = Field(None, description="End in a recording, in seconds.")
    raw_cells: list[RawCell] | None = None
    """Cells of a spreadsheet in this range whose text shows another form of their value, in order.
    Null if there are none.
    """

    def clip(self, start: int, end: int) -> Span:
        """Return the part in `[start, end)`, with the raw cells that lie in it."""
        start, end = max(start, self.char_start), min(end, self.char_end)
        cells = self.raw_cells or []
        first = bisect_left(cells, start, key=lambda cell: cell.char_start)
        last = bisect_right(cells, end, key=lambda cell: cell.char_end)
        return self.model_copy(
            update={"char_start": start, "char_end": end, "raw_cells": cells[first:last] or None}
        )

    def shift(self, offset: int) -> Span:
        """Return the characters and raw cells alone, `offset` further on."""
        return Span(
            char_start=self.char_start + offset,
            char_end=self.char_end + offset,
            raw_cells=self.raw_cells
            and [
                cell.model_copy(
                    update={
                        "char_start": cell.char_start + offset,
                        "char_end": cell.char_end + offset,
                    }
                )
                for cell in self.raw_cells
            ],
        )


BlockKind = Literal[
    "heading", "paragraph", "list", "table", "code", "formula", "caption", "summary"
]


class Block(Value):
    """One block of a transcript.

    Its text is `markdown[span.char_start:span.char_end]`. Blocks are in order and do not overlap.
    """

    kind: BlockKind = Field(description="Kind of block.")
    span: Span
    level: int | None = Field(None, ge=1, le=6, description="Level of a heading.")
    language: str | None = None
    """Programming language of a code block, such as `python` or `sql`."""
    header_end: int | None = None
    """Offset at which the header rows of a table end, including the delimiter row."""


class Notice(Value):
    """A remark for people about a document that is searchable nonetheless."""

    code: str = Field(description="Code for programs.")
    detail: str = Field(description="Explanation for people.")


class Transcript(Value):
    """A document as Markdown with positions."""

    markdown: str = Field(description="The text.")
    blocks: list[Block] = Field(description="Blocks of the text, in order.")
    title: DisplayName | None = Field(None, description="Title found in the document.")
    language: str | None = Field(None, description="BCP 47 primary subtag, or null if unknown.")
    pages: int | None = Field(None, description="Number of pages.")
    ocr_pages: list[int] = Field([], description="Pages that were read by OCR, from 1.")
    document_date: date | None = Field(None, description="Date found in the document.")
    warnings: list[Notice] = Field([], description="Remarks about the transcription.")

    def compress(self) -> bytes:
        """Return gzipped JSON, the same bytes each time."""
        return gzip.compress(self.model_dump_json().encode(), mtime=0)

    @classmethod
    def decompress(cls, data: bytes) -> Transcript:
        return cls.model_validate_json(gzip.decompress(data))


class BlobRef(Value):
    """A reference to bytes in the blob store, verified by hash when read."""

    key: str
    sha256: str
    size: int = Field(description="Size in bytes.")
    media_type: str | None = None


class Origin(Value):
    """The producer's names for the document and its event.

    Every event carries them, so that the last stage can publish the outcome.
    """

    accepted_id: UUID = Field(description="Internal id of the accepted event.")
    event_id: str = Field(description="The producer's ce_id.")
    source: str = Field(description="The producer's ce_source.")
    external_id: str | None = None


def format_embedding_text(prefix: str, text: str) -> str:
    """Return the text that is embedded for a chunk: title and headings, then the chunk."""
    return f"{prefix}\n{text}" if prefix else text


class ChildChunk(Value):
    """A unit of search of about 330 tokens by default.

    `text` is the Markdown from the first span's start to the last span's end.
    """

    id: UUID
    ordinal: int = Field(description="Position in the document, from 0.")
    kind: BlockKind = "paragraph"
    text: str
    prefix: str = ""
    """Title and heading path, and the header of a split table. Embedded and indexed with the text,
    but never quoted.
    """
    char_start: int
    char_end: int
    spans: list[Span]
    tokens: int
    language: str | None = Field(None, description="Programming language of a code block.")


class ParentChunk(Value):
    """A unit of reading of 800 to 1,000 tokens from one section, with its child chunks in order."""

    id: UUID
    ordinal: int = Field(description="Position in the document, from 0.")
    text: str
    section: str = Field("", description="Heading path, such as `H1 > H2 > H3`.")
    char_start: int
    char_end: int
    pages: list[int] = []
    tokens: int
    children: list[ChildChunk]


class Mention(Value):
    """A name in a document."""

    chunk_id: UUID
    name: str = Field(description="The name as written.")
    key: str
    """Normalized name. Mentions with the same key and type refer to the same entity."""
    type: str
    char_start: int = Field(description="Offset in the document's Markdown.")
    char_end: int = Field(description="Offset in the document's Markdown.")


class Relation(Value):
    """A relation between two entities that are mentioned in the document."""

    chunk_id: UUID
    subject: tuple[str, str] = Field(description="Type and key of a mention in the same document.")
    type: str
    object: tuple[str, str] = Field(description="Type and key of a mention in the same document.")
    weight: float = Field(ge=0, le=1)
    extractor: str
    char_start: int
    """Start of the evidence, a sentence, in the document's Markdown."""
    char_end: int = Field(description="End of the evidence in the document's Markdown.")


class Claim(Value):
    """A property of an entity, such as an amount, a date or an identifier."""

    chunk_id: UUID
    subject: tuple[str, str] = Field(description="Type and key of a mention in the same document.")
    property: str
    value: str
    char_start: int = Field(description="Start of the evidence in the document's Markdown.")
    char_end: int = Field(description="End of the evidence in the document's Markdown.")


class Extraction(Value):
    mentions: list[Mention] = []
    relations: list[Relation] = []
    claims: list[Claim] = []


class ChunkVector(Value):
    """The vectors of one chunk."""

    chunk_id: UUID
    vector: str = Field(description="Base64 of little-endian float16 numbers.")
    state_offset: int = 0
    """Offset of the token states in the event's blob, in bytes."""
    state_length: int = Field(0, description="Length of the token states in bytes.")
    background_dense: float | None = None
    """Mean cosine similarity with the engine's background questions."""
    background_maxsim: float | None = None
    """Mean MaxSim score with the engine's background questions."""


class Amendment(Value):
    """Changes to the descriptive fields of a document. Fields that are null stay as they are."""

    title: DisplayName | None = Field(None, max_length=2000)
    """New title. An empty string removes the title."""
    collection: str | None = Field(None, max_length=255)
    """New collection. An empty string removes the document from its collection."""
    tags: list[Annotated[str, Field(max_length=255)]] | None = Field(None, max_length=256)
    """Tags that replace the current ones."""
    metadata: dict[str, Any] | None = None
    """Metadata to merge into the current metadata. A key with the value null is removed."""
    readers: Readers | None = None
    """Users and groups that may read the document, replacing the current ones. `everyone` lifts the
    limit.
    """

    def stated_fields(self) -> dict[str, Any]:
        """Return the fields that the amendment changes."""
        values = {name: getattr(self, name) for name in Amendment.model_fields}
        return {
            name: value
            for name, value in values.items()
            if value is not None and not (name == "metadata" and not value)
        }


class RequestedChange(Value):
    """A change of a document, with the limits of the caller who requested it."""

    # Any names: those of a token are not checked against the form of readers.
    limited_to: list[str] | None = None
    """Reader names of the caller. The change takes effect only if the readers that precede it name
    one of them. Null: the caller is not limited to readers.
    """


class DocumentSummary(Value):
    """Descriptive fields of the document that an event refers to."""

    external_id: str | None = None
    title: DisplayName | None = None
    filename: DisplayName | None = None
    source_uri: str | None = None
    """Source URI of the document, or the URL that it was to be fetched from."""
    media_type: str | None = None
    collection: str | None = None
    tags: list[str] = []


class DocumentFields(Value):
    """Descriptive fields that a producer may set."""

    filename: DisplayName | None = Field(None, max_length=1024)
    """File name, used to detect the type and as a fallback title."""
    media_type: str | None = Field(None, max_length=255)
    """Media type. Detected from the bytes if omitted."""
    title: DisplayName | None = Field(None, max_length=2000)
    """Title. Taken from the document if omitted."""
    language: str | None = Field(None, max_length=35)
    """Language as a BCP 47 tag. Detected if omitted."""
    collection: str | None = Field(None, max_length=255)
    """Collection that the document belongs to."""
    tags: list[Annotated[str, Field(max_length=255)]] = Field(default=[], max_length=256)
    """Tags to filter by."""
    metadata: dict[str, Any] = Field({}, description="Metadata to filter by.")
    source_uri: str | None = Field(None, max_length=8192)
    """URI of the original, shown with results."""
    document_date: date | None = Field(None, description="Date of the document, to filter by.")
    readers: Readers | None = None
    """Users and groups that may read the document. Null allows everyone in the tenant."""
