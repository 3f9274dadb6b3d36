"""HTML reader: the main content, each block with the nearest id that a link can target."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engines.parse import text
from engines.parse.html_blocks import (
    BLOCK_TAGS,
    LINE_BREAK,
    PARAGRAPH_BREAK,
    build_grid,
    collapse_whitespace,
    find_anchor,
    format_code_element,
    format_inline,
    is_layout_table,
    is_skipped,
    iter_list_items,
    iter_rows,
)
from engines.parse.html_tree import HtmlElement, parse_html
from engines.parsed_blocks import ParsedBlock, ParsedPart, format_table
from schemas.values import Notice

_CHARSET = re.compile(rb"<meta[^<>]+charset\s*+=\s*+[\"']?\s*+([A-Za-z0-9_-]+)", re.I)


def read(data: bytes) -> ParsedPart:
    declared = _CHARSET.search(data[:4096])
    decoded = text.decode_text(data, declared[1].decode() if declared else None)
    root = parse_html(decoded.text)
    first_by_tag = {element.tag: element for element in reversed(list(root.iter_descendants()))}
    walker = _HtmlWalker()
    main = _find_main(root)
    walker.walk_children(main, main.attributes.get("id"))
    walker.flush_line()
    canonical_notices = [
        Notice(code="CANONICAL_URL", detail=url) for url in _find_canonical_urls(root)
    ]
    return ParsedPart(
        walker.blocks,
        title=_find_title(first_by_tag),
        language=_find_language(first_by_tag),
        date=_find_date(root),
        notices=[*decoded.notices, *canonical_notices],
    )


def _find_main(root: HtmlElement) -> HtmlElement:
    """Return the element with the main content.

    It is the only `main`, else the only `article`, with over a fifth of the page's text, else the
    body.
    """
    elements = list(root.iter_descendants())
    body = next((element for element in elements if element.tag == "body"), root)
    body_length = len(body.get_text())
    for tag in ("main", "article"):
        candidates = [
            element
            for element in elements
            if element.tag == tag or (tag == "main" and element.attributes.get("role") == "main")
        ]
        if len(candidates) == 1 and len(candidates[0].get_text()) > body_length / 5:
            return candidates[0]
    return body


def _find_title(first_by_tag: dict[str, HtmlElement]) -> str | None:
    return next(
        (
            words
            for tag in ("h1", "title")
            if tag in first_by_tag and (words := collapse_whitespace(first_by_tag[tag].get_text()))
        ),
        None,
    )


def _find_language(first_by_tag: dict[str, HtmlElement]) -> str | None:
    declared = first_by_tag["html"].attributes.get("lang", "") if "html" in first_by_tag else ""
    return declared.split("-")[0].strip().lower() or None


def _find_date(root: HtmlElement) -> str | None:
    names = {
        "article:published_time",
        "date",
        "dc.date",
        "dcterms.date",
        "citation_publication_date",
    }
    for element in root.iter_descendants():
        if (
            element.tag == "meta"
            and (element.attributes.get("property") or element.attributes.get("name") or "").lower()
            in names
        ):
            return element.attributes.get("content")
    return None


def _find_canonical_urls(root: HtmlElement) -> list[str]:
    links = (element.attributes for element in root.iter_descendants() if element.tag == "link")
    return [
        link["href"]
        for link in links
        if "canonical" in link.get("rel", "").lower() and link.get("href")
    ][:1]


@dataclass
class _HtmlWalker:
    """Converts a tree to blocks in one pass; `line` collects the inline text of the current block."""

    blocks: list[ParsedBlock] = field(default_factory=list)
    line: list[str] = field(default_factory=list)
    anchor_id: str | None = None
    is_blank: bool = True
    """True while `line` holds no visible text."""

    def walk_children(self, element: HtmlElement, anchor_id: str | None) -> None:
        for child in element.children:
            if isinstance(child, str):
                self._append_inline(child, anchor_id)
            elif not is_skipped(child, element):
                self._walk_element(
                    child, child.attributes.get("id") or find_anchor(child) or anchor_id
                )

    def flush_line(self) -> None:
        paragraphs = PARAGRAPH_BREAK.split("".join(self.line))
        self.line, self.is_blank = [], True
        self.blocks += [
            ParsedBlock("paragraph", words, element=self.anchor_id)
            for part in paragraphs
            if (words := collapse_whitespace(part))
        ]

    def _append_inline(self, words: str, anchor_id: str | None) -> None:
        if self.is_blank:
            self.anchor_id, self.is_blank = anchor_id, not words.strip()
        self.line.append(words)

    def _walk_element(self, element: HtmlElement, anchor_id: str | None) -> None:
        if element.tag == "br":
            self._append_inline(LINE_BREAK, anchor_id)
        elif element.tag == "img":
            self._append_inline(
                f" {collapse_whitespace(element.attributes.get('alt', ''))} ", anchor_id
            )
        elif element.tag in BLOCK_TAGS:
            self.flush_line()
            self._walk_block(element, anchor_id)
            self.flush_line()
        else:
            self._walk_mixed(element, anchor_id)

    def _walk_mixed(self, element: HtmlElement, anchor_id: str | None) -> None:
        if any(inner.tag in BLOCK_TAGS for inner in element.iter_descendants()):
            self.walk_children(element, anchor_id)
        else:
            self._append_inline(format_inline(element), anchor_id)

    def _walk_block(self, element: HtmlElement, anchor_id: str | None) -> None:
        match element.tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._add(
                    ParsedBlock(
                        "heading",
                        collapse_whitespace(format_inline(element)),
                        level=int(element.tag[1]),
                        element=anchor_id,
                    )
                )
            case "pre":
                self._add(format_code_element(element, anchor_id))
            case "ul" | "ol" | "dl":
                self._add(
                    ParsedBlock("list", "\n".join(iter_list_items(element, 0)), element=anchor_id)
                )
            case "table":
                self._add_table(element, anchor_id)
            case "figcaption":
                self._add(
                    ParsedBlock(
                        "caption", collapse_whitespace(format_inline(element)), element=anchor_id
                    )
                )
            case _:
                self.walk_children(element, anchor_id)

    def _add_table(self, element: HtmlElement, anchor_id: str | None) -> None:
        for caption in (child for child in element.iter_elements() if child.tag == "caption"):
            self._add(
                ParsedBlock(
                    "caption", collapse_whitespace(format_inline(caption)), element=anchor_id
                )
            )
        rows, header_row_count = build_grid(element)
        if is_layout_table(element, rows):
            for row in iter_rows(element):
                for cell in row.iter_elements():
                    self.walk_children(cell, anchor_id)
                    self.flush_line()
        elif rows:
            body, end = format_table(rows, header_row_count)
            self._add(ParsedBlock("table", body, header_end=end, element=anchor_id))

    def _add(self, block: ParsedBlock) -> None:
        if block.text.strip():
            self.blocks.append(block)
