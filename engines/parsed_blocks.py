"""Blocks and parts of a document as format readers and OCR produce them, without offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import Any, NamedTuple, Protocol, Self

from pydantic import TypeAdapter

from schemas.values import BlockKind, Box, Notice


class FormattedCell(str):
    """Text of a table cell that shows a stored value in another form, with that value."""

    __slots__ = ("raw_value",)
    raw_value: str

    def __new__(cls, text: str, raw_value: str) -> Self:
        cell = super().__new__(cls, text)
        cell.raw_value = raw_value
        return cell


def clamp_box(box: Iterable[float]) -> Box:
    """Return a box, in shares of its page, without what lies outside of the page."""
    x0, y0, x1, y1 = (round(min(max(value, 0.0), 1.0), 4) for value in box)
    return x0, y0, x1, y1


@dataclass(slots=True)
class ParsedBlock:
    """A block whose offset in the Markdown is not known yet.

    The text is final Markdown, except that a heading has no `#` marks.
    """

    kind: BlockKind
    text: str
    level: int | None = None
    language: str | None = None
    header_end: int | None = None
    """Offset in a table's `text` where its header rows, with the delimiter row, end."""
    page: int | None = None
    box: Box | None = None
    element: str | None = None
    sheet: str | None = None
    cells: str | None = None
    raw_cells: list[tuple[int, int, str]] | None = None
    """Start and end in a table's `text` and stored value of cells that show it in another form."""
    start_s: float | None = None
    end_s: float | None = None
    """End in a recording, in seconds."""
    size: float | None = None
    """Letter height of a heading without a level, in one unit for the whole document."""

    def to_record(self) -> dict[str, Any]:
        return {name: value for name in _FIELD_NAMES if (value := getattr(self, name)) is not None}


_FIELD_NAMES = tuple(field.name for field in fields(ParsedBlock))


class OcrEngine(Protocol):
    """Reads page images. `fingerprint` changes when the output may change."""

    fingerprint: str

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        """Read the blocks of one page (PNG) in reading order.

        Boxes are shares of the given image; `page` is unset.

        Raises EngineUnavailable, LimitExceeded (DEADLINE_EXCEEDED, MEMORY_EXCEEDED) or
        UnreadableDocument (PARSER_CRASHED).
        """
        ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class ParsedPart:
    """One part of a document. `unread` lists pages that need OCR; empty in a complete part."""

    blocks: list[ParsedBlock] = field(default_factory=list)
    title: str | None = None
    language: str | None = None
    document_date: date | None = None
    ocr_pages: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def extend(self, inner: ParsedPart) -> None:
        """Add the blocks and notices of a file inside the document."""
        self.blocks += inner.blocks
        self.notices += inner.notices
        self.language = self.language or inner.language

    def encode(self) -> bytes:
        record = {
            "blocks": [block.to_record() for block in self.blocks],
            "title": self.title,
            "language": self.language,
            "document_date": self.document_date.isoformat() if self.document_date else None,
            "ocr_pages": self.ocr_pages,
            "unread": self.unread,
            "notices": [notice.model_dump() for notice in self.notices],
        }
        # Damaged files yield lone surrogates, which UTF-8 cannot encode.
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(
            errors="replace"
        )

    @staticmethod
    def decode(data: bytes) -> ParsedPart:
        """Decode a part. Raises ValueError unless every field has its type."""
        return _PART_ADAPTER.validate_json(data)

    def insert_page_blocks(self, page: int, blocks: Iterable[ParsedBlock]) -> None:
        """Insert the OCR blocks of `page` between the blocks of the other pages."""
        blocks = [replace(block, page=page) for block in blocks]
        # Blocks without a page are those of attachments, which follow all pages.
        preceding = [block for block in self.blocks if block.page and block.page < page]
        following = [block for block in self.blocks if not block.page or block.page >= page]
        self.blocks = [*preceding, *blocks, *following]
        self.unread = [unread_page for unread_page in self.unread if unread_page != page]
        self.ocr_pages = sorted({*self.ocr_pages, page})


_PART_ADAPTER = TypeAdapter(ParsedPart)
decode_blocks = TypeAdapter(list[ParsedBlock]).validate_json
"""Decode blocks. Raises ValueError unless every field has its type."""

_VALUE_START = re.compile(
    r"[\s(+\-–~<>≤≥]*(?:[A-Z]{2,3}\s|[A-Z]{0,3}[$€£¥]\s?)?[+\-–]?[.,]?\d|[-–—]\s*$"
)
"""A cell that begins with a number, an amount or a date, or a dash that stands for zero."""
_YEAR_LABEL = re.compile(r"\s*(?:FY\s?|[QH][1-4]\s)?(?:19|20)\d\d\s*[*†]?\s*")
"""A column name in reports, although it begins with a digit."""
_CODE_OR_AMOUNT = re.compile(
    r"(?<!\w)(?!(?:19|20)\d\d(?:[-/–]\d\d(?:\d\d)?)?(?!\w|[.,:/-]\d))(?:[A-Z]+[-/])?"
    r"(?:[$€£¥]\s?\d|\d+(?:[.,:/-]\d+)+|\d{3,})"
)
"""Part of a cell that no column name has: an identifier, amount, date or time, but not a year."""
_MIN_VALUE_SHARE, _MIN_LABELED_SHARE = 0.6, 0.4


def is_value(cell: str) -> bool:
    return bool(_VALUE_START.match(cell))


def is_year_label(cell: str) -> bool:
    return bool(_YEAR_LABEL.fullmatch(cell))


def has_header(rows: Sequence[Sequence[str]], *, by_convention: bool) -> bool:
    """Return whether the first row names the columns.

    A name above values is evidence for a header; a value above values is evidence against.
    `by_convention` is the answer without evidence: spreadsheets and printed tables start with
    names, web pages mark theirs with `th`.
    """
    if has_labels(rows):
        return False
    evidence = [
        _weigh_header_evidence([row[i] if i < len(row) else "" for row in rows])
        for i in range(len(rows[0]))
    ]
    if len(rows) < 2 or min(evidence) < 0:
        return False
    return by_convention or max(evidence) > 0


def has_labels(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether each row is a label with its value: the first row is then no header."""
    if len(rows) < 2 or any(len(row) != 2 or not row[0].strip() for row in rows):
        return False
    if all(row[0].rstrip().endswith(":") for row in rows):
        return True
    # A code or an amount beside the first label, as beside the others, is a value.
    n_values = sum(bool(_CODE_OR_AMOUNT.search(row[1])) for row in rows)
    return (
        bool(_CODE_OR_AMOUNT.search(rows[0][1]))
        # Labels of a form have values of several kinds, and a column under its name of one.
        and n_values >= max(2, _MIN_LABELED_SHARE * len(rows))
        and all(is_label(row[0]) for row in rows)
    )


def is_label(cell: str) -> bool:
    return cell.strip()[:1].isalpha()


def _weigh_header_evidence(column: Sequence[str]) -> int:
    """Return 1 if the column suggests a header, -1 if it rules one out, else 0."""
    first, cells_below = column[0], [cell for cell in column[1:] if cell.strip()]
    if not first.strip() or not cells_below:
        return 0
    values = sum(bool(_VALUE_START.match(cell)) for cell in cells_below) >= _MIN_VALUE_SHARE * len(
        cells_below
    )
    if not _VALUE_START.match(first):
        return int(values)
    if _YEAR_LABEL.fullmatch(first) and not all(
        _YEAR_LABEL.fullmatch(cell) for cell in cells_below
    ):
        return int(values)
    return -1 if values else 0


class TableText(NamedTuple):
    """A Markdown pipe table, the offset where its header rows end, and its raw cells."""

    text: str
    header_end: int
    raw_cells: list[tuple[int, int, str]]


def format_table(rows: Sequence[Sequence[str]], header_row_count: int = 1) -> TableText:
    """Format rows as a Markdown pipe table.

    Line breaks in cells become spaces and `|` is escaped. Without headers the header row, which
    Markdown requires, is blank.
    """
    width = max(len(row) for row in rows)
    texts = [
        [" ".join(cell.split()).replace("\\|", "|").replace("|", "\\|") for cell in row]
        for row in rows
    ]
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in texts]
    head = [*(lines[:header_row_count] or ["|" + "  |" * width]), "|" + " --- |" * width]
    header_end, offset = len("\n".join(head)), 0
    raw_cells: list[tuple[int, int, str]] = []
    for number, (row, row_texts, line) in enumerate(zip(rows, texts, lines, strict=True)):
        if number == header_row_count:
            offset = header_end + 1
        raw_cells += _find_raw_cells(row, row_texts, offset)
        offset += len(line) + 1
    return TableText("\n".join(head + lines[header_row_count:]), header_end, raw_cells)


def _find_raw_cells(
    row: Sequence[str], texts: Sequence[str], offset: int
) -> Iterator[tuple[int, int, str]]:
    start = offset + len("| ")
    for cell, text in zip(row, texts, strict=True):
        if isinstance(cell, FormattedCell):
            yield start, start + len(text), cell.raw_value
        start += len(text) + len(" | ")
