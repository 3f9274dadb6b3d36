"""HTML to drafts: the main content without navigation, each block with the nearest id that a link could point at."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engines.drafts import Draft, Piece, table
from engines.parse import text
from engines.parse.html_blocks import BLOCKS, BREAK, BREAKS, anchor, code_of, grid, inline, is_layout, items, rows_of, skipped, squeeze
from engines.parse.html_tree import Element, parse
from schemas.values import Notice

_CHARSET = re.compile(rb"<meta[^<>]+charset\s*+=\s*+[\"']?\s*+([A-Za-z0-9_-]+)", re.I)


def read(data: bytes) -> Piece:
    declared = _CHARSET.search(data[:4096])
    decoded = text.decode(data, declared[1].decode() if declared else None)
    root = parse(decoded.text)
    found = {element.tag: element for element in reversed(list(root.descendants()))}
    walk = _Walk()
    main = _main(root)
    walk.block(main, main.attributes.get("id"))
    walk.finish()
    piece = Piece(walk.drafts, title=_title(found), language=_language(found), date=_date(root), notices=list(decoded.notices))
    piece.notices += [Notice(code="CANONICAL_URL", detail=url) for url in _canonical(root)]
    return piece


def _main(root: Element) -> Element:
    """The one `main`, else the one `article`, else the body; unless it holds less than a fifth of the page's words."""
    elements = list(root.descendants())
    body = next((element for element in elements if element.tag == "body"), root)
    everything = len(body.words())
    for wanted in ("main", "article"):
        these = [element for element in elements if element.tag == wanted or (wanted == "main" and element.attributes.get("role") == "main")]
        if len(these) == 1 and len(these[0].words()) > everything / 5:
            return these[0]
    return body


def _title(found: dict[str, Element]) -> str | None:
    return next((words for tag in ("h1", "title") if tag in found and (words := squeeze(found[tag].words()))), None)


def _language(found: dict[str, Element]) -> str | None:
    stated = found["html"].attributes.get("lang", "") if "html" in found else ""
    return stated.split("-")[0].strip().lower() or None


def _date(root: Element) -> str | None:
    names = {"article:published_time", "date", "dc.date", "dcterms.date", "citation_publication_date"}
    for element in root.descendants():
        if element.tag == "meta" and (element.attributes.get("property") or element.attributes.get("name") or "").lower() in names:
            return element.attributes.get("content")
    return None


def _canonical(root: Element) -> list[str]:
    links = (element.attributes for element in root.descendants() if element.tag == "link")
    return [link["href"] for link in links if "canonical" in link.get("rel", "").lower() and link.get("href")][:1]


@dataclass
class _Walk:
    """Goes through the tree once; `line` collects the inline text of the block at hand."""

    drafts: list[Draft] = field(default_factory=list)
    line: list[str] = field(default_factory=list)
    place: str | None = None
    is_blank: bool = True
    """Whether `line` shows nothing yet."""

    def block(self, element: Element, place: str | None) -> None:
        for child in element.children:
            if isinstance(child, str):
                self._inline(child, place)
            elif not skipped(child, element):
                self._element(child, child.attributes.get("id") or anchor(child) or place)

    def finish(self) -> None:
        paragraphs = BREAKS.split("".join(self.line))
        self.line, self.is_blank = [], True
        self.drafts += [Draft("paragraph", words, element=self.place) for part in paragraphs if (words := squeeze(part))]

    def _inline(self, words: str, place: str | None) -> None:
        if self.is_blank:
            self.place, self.is_blank = place, not words.strip()
        self.line.append(words)

    def _element(self, element: Element, place: str | None) -> None:
        if element.tag == "br":
            self._inline(BREAK, place)
        elif element.tag == "img":
            self._inline(f" {squeeze(element.attributes.get('alt', ''))} ", place)
        elif element.tag in BLOCKS:
            self.finish()
            self._whole(element, place)
            self.finish()
        else:
            self._maybe_mixed(element, place)

    def _maybe_mixed(self, element: Element, place: str | None) -> None:
        if any(inner.tag in BLOCKS for inner in element.descendants()):
            self.block(element, place)
        else:
            self._inline(inline(element), place)

    def _whole(self, element: Element, place: str | None) -> None:
        match element.tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._add(Draft("heading", squeeze(inline(element)), level=int(element.tag[1]), element=place))
            case "pre":
                self._add(code_of(element, place))
            case "ul" | "ol" | "dl":
                self._add(Draft("list", "\n".join(items(element, 0)), element=place))
            case "table":
                self._table(element, place)
            case "figcaption":
                self._add(Draft("caption", squeeze(inline(element)), element=place))
            case _:
                self.block(element, place)

    def _table(self, element: Element, place: str | None) -> None:
        for caption in (child for child in element.elements() if child.tag == "caption"):
            self._add(Draft("caption", squeeze(inline(caption)), element=place))
        rows, headers = grid(element)
        if is_layout(element, rows):
            for row in rows_of(element):
                for cell in row.elements():
                    self.block(cell, place)
                    self.finish()
        elif rows:
            body, end = table(rows, headers)
            self._add(Draft("table", body, header_end=end, element=place))

    def _add(self, draft: Draft) -> None:
        if draft.text.strip():
            self.drafts.append(draft)
