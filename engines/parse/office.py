"""Reader of DOCX, PPTX, ODT and JATS by docling-rs, which needs no models for them."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from docling_rs import ConversionError, DocumentConverter, DocumentStream, InputFormat

from engines.parse.docx import rewrite_docx
from engines.parse.header_rows import merge_header_rows
from engines.parse.html import format_code
from engines.parse.notices import make_corrupt_error, spend
from engines.parse.ooxml import Package, rewrite
from engines.parse.opendocument import rewrite_odt
from engines.parse.pptx import rewrite_pptx
from engines.parse.scripts import (
    format_note_mark,
    format_struck,
    format_subscript,
    format_superscript,
)
from engines.parse.xml_parts import refuse_damaged_parts
from engines.parsed_blocks import ParsedBlock, ParsedPart, clamp_box, format_table
from schemas.values import Box, Notice

CAPTION = re.compile(
    r"(?:fig(?:ure|ura|\.)|table|tabela|quadro|gr[aá]fico|chart|exhibit)\s*\d+(?:[.:)–—-]|\s*$|\s)",
    re.I,
)
_SCRIPT = re.compile(
    r"<(?P<tag>su[pb]|strike)\b[^<>]*+>(?P<inner>[^<>]*+(?:<xref\b[^<>]*+>[^<>]*+</xref>)?+[^<>]*+)</(?P=tag)>"
)
# docling drops the terms of definitions.
_DEFINITION = re.compile(
    r"<term\b[^<>]*+>([^<>]*+)</term>\s*+(<def\b[^<>]*+>\s*+<p\b[^<>]*+>)", re.I
)
_TAG = re.compile(r"<[^<>]*+>")
_LIST_GROUPS = frozenset({"list", "ordered_list"})


def _read(
    input_format: InputFormat,
    suffix: str,
    source: Path | bytes,
    rewriter: Callable[[Package], None] | None = None,
) -> ParsedPart:
    notices: list[Notice] = []
    if rewriter is not None and isinstance(source, Path):
        with refuse_damaged_parts("document"):
            data, notices = rewrite(source, rewriter)
    else:
        data = source if isinstance(source, bytes) else source.read_bytes()
    try:
        document = (
            DocumentConverter(allowed_formats=[input_format])
            .convert(DocumentStream(name=f"document{suffix}", stream=io.BytesIO(data)))
            .document
        )
    except (ConversionError, ValueError, RuntimeError) as error:
        raise make_corrupt_error(f"The document cannot be read: {str(error)[:200]}") from error
    walker = _DoclingWalker(document)
    walker.walk_children(document.body, 0)
    title = next(
        (block.text for block in walker.blocks if block.kind == "heading" and block.level == 1),
        None,
    )
    return ParsedPart(walker.blocks, title=title, notices=notices)


read_docx = partial(_read, InputFormat.DOCX, ".docx", rewriter=rewrite_docx)
read_pptx = partial(_read, InputFormat.PPTX, ".pptx", rewriter=rewrite_pptx)
read_odt = partial(_read, InputFormat.ODT, ".odt", rewriter=rewrite_odt)


def read_jats(data: bytes) -> ParsedPart:
    with suppress(UnicodeDecodeError):
        text = _DEFINITION.sub(r"\2\1: ", data.decode())
        data = _SCRIPT.sub(_format_script, text).encode()
    return _read(InputFormat.XML_JATS, ".nxml", data)


_SCRIPT_FORMATS = {"sup": format_superscript, "sub": format_subscript, "strike": format_struck}


def _format_script(match: re.Match[str]) -> str:
    """Write raised, lowered or struck text as plain text, which docling would join to the rest."""
    words = html.unescape(_TAG.sub("", match["inner"]))
    if "<xref" in match["inner"]:
        return html.escape(format_note_mark(words))
    return html.escape(_SCRIPT_FORMATS[match["tag"]](words))


@dataclass
class _DoclingWalker:
    """Converts docling's tree to blocks in reading order."""

    document: Any
    blocks: list[ParsedBlock] = field(default_factory=list)
    has_title: bool = False

    def __post_init__(self) -> None:
        self.has_title = any(item.label.value == "title" for item in self.document.texts)

    def walk_children(self, node: Any, depth: int) -> None:
        for reference in node.children:
            self.walk_item(reference.resolve(self.document), depth)

    def walk_item(self, node: Any, depth: int) -> None:
        label = node.label.value
        if label in _LIST_GROUPS:
            self._add(ParsedBlock("list", "\n".join(self._iter_items(node, 0))), node)
        elif label == "inline":
            self._add(ParsedBlock("paragraph", self._format_inline(node)), node)
        elif label == "table":
            self._add_table(node)
        elif label == "list_item":
            self._add(ParsedBlock("list", "\n".join(self._iter_item(node, 0))), node)
        else:
            self._add_text(node, label)
            self.walk_children(node, depth)

    def _add_text(self, node: Any, label: str) -> None:
        words = " ".join(getattr(node, "text", "").split())
        match label:
            case "title":
                self._add(ParsedBlock("heading", words, level=1), node)
            case "section_header":
                self._add(
                    ParsedBlock("heading", words, level=min(6, node.level + self.has_title)), node
                )
            case "code":
                language = getattr(getattr(node, "code_language", None), "value", None)
                if language:
                    language = None if language == "unknown" else language.lower()
                self._add(format_code(node.text, language), node)
            case "formula":
                self._add(ParsedBlock("formula", f"$${words}$$" if words else ""), node)
            case _ if words:
                self._add(
                    ParsedBlock(
                        "caption" if label == "caption" or CAPTION.match(words) else "paragraph",
                        words,
                    ),
                    node,
                )

    def _add_table(self, node: Any) -> None:
        rows = [[cell.text for cell in row] for row in node.data.grid]
        # The text of a spanning cell is repeated in each cell that it covers.
        spend(sum(len(cell) for row in rows for cell in row))
        header_row_count = 0
        for row in node.data.grid:
            if not row or not all(cell.column_header for cell in row):
                break
            header_row_count += 1
        if any(any(cell.strip() for cell in row) for row in rows):
            if header_row_count <= 1:
                rows, header_row_count = merge_header_rows(rows)
            text, end, _ = format_table(rows, min(header_row_count, len(rows)))
            self._add(ParsedBlock("table", text, header_end=end), node)

    def _iter_items(self, group: Any, depth: int) -> Iterator[str]:
        for reference in group.children:
            node = reference.resolve(self.document)
            if node.label.value in _LIST_GROUPS:
                yield from self._iter_items(node, depth + 1)
            else:
                yield from self._iter_item(node, depth)

    def _iter_item(self, node: Any, depth: int) -> Iterator[str]:
        child_nodes = [reference.resolve(self.document) for reference in node.children]
        words = " ".join(getattr(node, "text", "").split()) or " ".join(
            self._format_inline(part) for part in child_nodes if part.label.value == "inline"
        )
        if words:
            marker = node.marker if getattr(node, "enumerated", False) and node.marker else "-"
            yield f"{'   ' * depth}{marker} {words}"
        for part in child_nodes:
            if part.label.value in _LIST_GROUPS:
                yield from self._iter_items(part, depth + 1)

    def _format_inline(self, group: Any) -> str:
        """Join the runs of one paragraph with spaces, except next to white space or punctuation."""
        words = ""
        for reference in group.children:
            node = reference.resolve(self.document)
            part = getattr(node, "text", "")
            part = f"${part.strip()}$" if node.label.value == "formula" else part
            is_glued = (
                not words
                or words[-1].isspace()
                or words[-1] in "([{“‘/"
                or part[:1].isspace()
                or part[:1] in ".,;:!?)]}”’/"
            )
            words += part if is_glued else f" {part}"
        return " ".join(words.split())

    def _add(self, block: ParsedBlock, node: Any) -> None:
        if block.text.strip():
            block.page, block.box = self._find_location(node)
            self.blocks.append(block)

    def _find_location(self, node: Any) -> tuple[int | None, Box | None]:
        """Return page and box, which slides have and flowing text has not."""
        if not getattr(node, "prov", None):
            child_nodes = [reference.resolve(self.document) for reference in node.children]
            return self._find_location(child_nodes[0]) if child_nodes else (None, None)
        provenance = node.prov[0]
        size = getattr(self.document.pages.get(provenance.page_no), "size", None)
        # A box with another origin is left out rather than misplaced.
        if (
            not size
            or not size.width
            or not size.height
            or provenance.bbox.coord_origin.value != "TOPLEFT"
        ):
            return provenance.page_no, None
        box = provenance.bbox
        width, height = size.width, size.height
        return provenance.page_no, clamp_box(
            (box.l / width, box.t / height, box.r / width, box.b / height)
        )
