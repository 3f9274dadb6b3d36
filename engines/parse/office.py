"""Office and other declarative formats (DOCX, PPTX, ODT, EPUB, EML, JATS) by docling-rs, which needs no models for them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docling_rs import ConversionError, DocumentConverter, DocumentStream, InputFormat

from engines.drafts import Draft, Piece, has_header, table
from engines.parse import detect
from engines.parse.archive import corrupt
from engines.parse.html_blocks import code
from engines.parse.limits import spend
from schemas.values import Box

_FORMATS = {
    detect.DOCX: (InputFormat.DOCX, ".docx"),
    detect.PPTX: (InputFormat.PPTX, ".pptx"),
    detect.ODT: (InputFormat.ODT, ".odt"),
    detect.EPUB: (InputFormat.EPUB, ".epub"),
    detect.MAIL: (InputFormat.EMAIL, ".eml"),
    detect.JATS: (InputFormat.XML_JATS, ".nxml"),
}
CAPTION = re.compile(r"(?:fig(?:ure|ura|\.)|table|tabela|quadro|gr[aá]fico|chart|exhibit)\s*\d+(?:[.:)–—-]|\s*$|\s)", re.I)
_LIST_GROUPS = frozenset({"list", "ordered_list"})


def read(path: Path, media_type: str) -> Piece:
    form, suffix = _FORMATS[media_type]
    try:
        document = DocumentConverter(allowed_formats=[form]).convert(DocumentStream(name=f"document{suffix}", stream=io.BytesIO(path.read_bytes()))).document
    except (ConversionError, ValueError, RuntimeError) as error:
        raise corrupt(f"the document cannot be read: {str(error)[:200]}") from error
    walk = _Walk(document)
    walk.children(document.body, 0)
    title = next((draft.text for draft in walk.drafts if draft.kind == "heading" and draft.level == 1), None)
    return Piece(walk.drafts, title=title)


@dataclass
class _Walk:
    """Goes through docling's tree in reading order."""

    document: Any
    drafts: list[Draft] = field(default_factory=list)
    titled: bool = False

    def __post_init__(self) -> None:
        self.titled = any(item.label.value == "title" for item in self.document.texts)

    def children(self, node: Any, depth: int) -> None:
        for reference in node.children:
            self.item(reference.resolve(self.document), depth)

    def item(self, node: Any, depth: int) -> None:
        label = node.label.value
        if label in _LIST_GROUPS:
            self._add(Draft("list", "\n".join(self._items(node, 0))), node)
        elif label == "inline":
            self._add(Draft("paragraph", self._inline(node)), node)
        elif label == "table":
            self._table(node)
        elif label == "list_item":
            self._add(Draft("list", "\n".join(self._item(node, 0))), node)
        else:
            self._text(node, label)
            self.children(node, depth)

    def _text(self, node: Any, label: str) -> None:
        words = " ".join(getattr(node, "text", "").split())
        match label:
            case "title":
                self._add(Draft("heading", words, level=1), node)
            case "section_header":
                self._add(Draft("heading", words, level=min(6, node.level + self.titled)), node)
            case "code":
                self._add(code(node.text, _language(node)), node)
            case "formula":
                self._add(Draft("formula", f"$${words}$$" if words else ""), node)
            case _ if words:
                self._add(Draft("caption" if label == "caption" or CAPTION.match(words) else "paragraph", words), node)

    def _table(self, node: Any) -> None:
        rows = [[cell.text for cell in row] for row in node.data.grid]
        spend(sum(len(cell) for row in rows for cell in row))
        headers = 0
        for row in node.data.grid:
            if not row or not all(cell.column_header for cell in row):
                break
            headers += 1
        if any(any(cell.strip() for cell in row) for row in rows):
            if headers <= 1:
                headers = int(has_header(rows, by_convention=True))
            text, end = table(rows, min(headers, len(rows)))
            self._add(Draft("table", text, header_end=end), node)

    def _items(self, group: Any, depth: int) -> Iterator[str]:
        for reference in group.children:
            node = reference.resolve(self.document)
            if node.label.value in _LIST_GROUPS:
                yield from self._items(node, depth + 1)
            else:
                yield from self._item(node, depth)

    def _item(self, node: Any, depth: int) -> Iterator[str]:
        inner = [reference.resolve(self.document) for reference in node.children]
        words = " ".join(getattr(node, "text", "").split()) or " ".join(self._inline(part) for part in inner if part.label.value == "inline")
        if words:
            mark = node.marker if getattr(node, "enumerated", False) and node.marker else "-"
            yield f"{'   ' * depth}{mark} {words}"
        for part in inner:
            if part.label.value in _LIST_GROUPS:
                yield from self._items(part, depth + 1)

    def _inline(self, group: Any) -> str:
        """Runs of one paragraph, with a space between two unless punctuation says otherwise."""
        words = ""
        for reference in group.children:
            node = reference.resolve(self.document)
            part = getattr(node, "text", "")
            part = f"${part.strip()}$" if node.label.value == "formula" else part
            glued = not words or words[-1].isspace() or words[-1] in "([{“‘/" or part[:1].isspace() or part[:1] in ".,;:!?)]}”’/"
            words += part if glued else f" {part}"
        return " ".join(words.split())

    def _add(self, draft: Draft, node: Any) -> None:
        if draft.text.strip():
            draft.page, draft.box = self._place(node)
            self.drafts.append(draft)

    def _place(self, node: Any) -> tuple[int | None, Box | None]:
        """Slides know where things stand; flowing text does not."""
        if not getattr(node, "prov", None):
            inner = [reference.resolve(self.document) for reference in node.children]
            return self._place(inner[0]) if inner else (None, None)
        where = node.prov[0]
        size = getattr(self.document.pages.get(where.page_no), "size", None)
        if not size or not size.width or not size.height or where.bbox.coord_origin.value != "TOPLEFT":
            return where.page_no, None
        return where.page_no, _clamped(where.bbox.l / size.width, where.bbox.t / size.height, where.bbox.r / size.width, where.bbox.b / size.height)


def _language(node: Any) -> str | None:
    stated = getattr(getattr(node, "code_language", None), "value", None)
    return stated.lower() if stated and stated != "unknown" else None


def _clamped(x0: float, y0: float, x1: float, y1: float) -> Box:
    return min(max(x0, 0.0), 1.0), min(max(y0, 0.0), 1.0), min(max(x1, 0.0), 1.0), min(max(y1, 0.0), 1.0)
