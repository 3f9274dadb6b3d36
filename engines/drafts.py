"""What readers of single formats produce: blocks without offsets, and how parts of a document travel between processes."""

from __future__ import annotations

import json
from collections.abc import Iterable
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


def table(rows: list[list[str]], headers: int = 1) -> tuple[str, int]:
    """Rows as a Markdown pipe table, and the offset where its header rows end. Cells hold no line breaks; `|` is escaped."""
    width = max(len(row) for row in rows)
    lines = ["| " + " | ".join(_cell(row[i]) if i < len(row) else "" for i in range(width)) + " |" for row in rows]
    head = [*lines[:headers], "|" + " --- |" * width]
    return "\n".join(head + lines[headers:]), len("\n".join(head))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\|", "|").replace("|", "\\|")
