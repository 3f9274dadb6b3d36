"""What readers of single formats produce: blocks without offsets, and how parts of a document travel between processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from schemas.values import BlockKind, Box, Notice


@dataclass(slots=True)
class Draft:
    """A block whose place in the Markdown is not yet known. A heading's text has no `#` marks; every other text is Markdown as it will stand."""

    kind: BlockKind
    text: str
    level: int | None = None
    language: str | None = None
    header_end: int | None = None
    """of a table: offset in `text` where its header rows, with the delimiter row, end"""
    page: int | None = None
    box: Box | None = None
    element: str | None = None
    sheet: str | None = None
    cells: str | None = None
    size: float | None = None
    """of a heading whose level is to be found: its letters' height, in a unit that holds for the whole document"""

    def record(self) -> dict[str, Any]:
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}

    @staticmethod
    def of(record: dict[str, Any]) -> Draft:
        box = record.get("box")
        return Draft(**{**record, "box": tuple(box) if box else None})


_NAMES = tuple(field.name for field in fields(Draft))


@dataclass(slots=True)
class Piece:
    """One part of a document. `unread` are pages that only OCR can read; they are none once the part is complete."""

    drafts: list[Draft] = field(default_factory=list)
    title: str | None = None
    language: str | None = None
    date: str | None = None
    ocr_pages: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def encode(self) -> bytes:
        record = {
            "drafts": [draft.record() for draft in self.drafts],
            "title": self.title,
            "language": self.language,
            "date": self.date,
            "ocr_pages": self.ocr_pages,
            "unread": self.unread,
            "notices": [notice.model_dump() for notice in self.notices],
        }
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    @staticmethod
    def decode(data: bytes) -> Piece:
        record = json.loads(data)
        drafts = [Draft.of(draft) for draft in record.pop("drafts")]
        notices = [Notice(**notice) for notice in record.pop("notices")]
        return Piece(drafts=drafts, notices=notices, **record)

    def place(self, page: int, drafts: Iterable[Draft]) -> None:
        """Put what OCR found on `page` among the drafts of the other pages."""
        drafts = [replace(draft, page=page) for draft in drafts]
        before = [draft for draft in self.drafts if (draft.page or 0) < page]
        after = [draft for draft in self.drafts if (draft.page or 0) >= page]
        self.drafts = [*before, *drafts, *after]
        self.unread = [other for other in self.unread if other != page]
        self.ocr_pages = sorted({*self.ocr_pages, page})


_VALUE = re.compile(r"[\s(+\-–~<>≤≥]*(?:[A-Z]{2,3}\s|[A-Z]{0,3}[$€£¥]\s?)?[+\-–]?[.,]?\d")
"""A cell that begins with a number, an amount or a date."""
_YEAR = re.compile(r"\s*(?:FY\s?|[QH][1-4]\s)?(?:19|20)\d\d\s*[*†]?\s*")
"""Names a column in reports, although it begins with a digit."""
_MOSTLY = 0.6


def has_header(rows: Sequence[Sequence[str]], *, by_convention: bool) -> bool:
    """Tell whether the first row names the columns.

    A column speaks for it where values stand below a name, against it where a value stands on top of values. `by_convention` decides
    where no column speaks: spreadsheets and printed tables begin with names, tables of a web page say so by `th`.
    """
    evidence = [_speaks([row[i] if i < len(row) else "" for row in rows]) for i in range(len(rows[0]))]
    if len(rows) < 2 or min(evidence) < 0:
        return False
    return by_convention or max(evidence) > 0


def _speaks(column: Sequence[str]) -> int:
    first, below = column[0], [cell for cell in column[1:] if cell.strip()]
    if not first.strip() or not below:
        return 0
    values = sum(bool(_VALUE.match(cell)) for cell in below) >= _MOSTLY * len(below)
    if not _VALUE.match(first):
        return int(values)
    if _YEAR.fullmatch(first) and not all(_YEAR.fullmatch(cell) for cell in below):
        return int(values)
    return -1 if values else 0


def table(rows: Sequence[Sequence[str]], headers: int = 1) -> tuple[str, int]:
    """Format rows as a Markdown pipe table; return it with the offset where its header rows end.

    Cells hold no line breaks; `|` is escaped. Without headers the header row, which Markdown demands, is blank.
    """
    width = max(len(row) for row in rows)
    lines = ["| " + " | ".join(_cell(row[i]) if i < len(row) else "" for i in range(width)) + " |" for row in rows]
    head = [*(lines[:headers] or ["|" + "  |" * width]), "|" + " --- |" * width]
    return "\n".join(head + lines[headers:]), len("\n".join(head))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\|", "|").replace("|", "\\|")
