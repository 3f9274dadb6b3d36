"""HTML to drafts: the main content without navigation, each block with the nearest id that a link could point at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from engines.drafts import Draft, Piece, table
from engines.parse import text
from engines.parse.html_tree import Element, parse
from schemas.values import Notice

_SKIPPED = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "iframe",
        "object",
        "nav",
        "footer",
        "aside",
        "form",
        "button",
        "select",
        "input",
        "textarea",
        "dialog",
        "head",
        "math",
        "audio",
        "video",
        "canvas",
        "map",
    ]
)
_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary", "dialog", "menu", "menubar"})
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "blockquote",
        "body",
        "center",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "html",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "ul",
    ]
)
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]+)", re.I)
_BREAK = "\u2028"
_BREAKS = re.compile(r"\u2028\s*\u2028")
"""Two line breaks in a row end a paragraph."""
_CHROME = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|breadcrumbs?|sidebar|cookies?|pagination|lang|toc|noprint|navbox|editsection|jump-link|share|social)(?:$|[\s_-])",
    re.I,
)
"""Names (id, class) of what surrounds a page's content."""
_CODE_LANGUAGE = re.compile(r"(?:lang(?:uage)?|highlight-source|brush:)[-\s]?([A-Za-z0-9+#]+)")


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
    return next((words for tag in ("h1", "title") if tag in found and (words := _squeeze(found[tag].words()))), None)


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


def _squeeze(words: str) -> str:
    return " ".join(words.split())


@dataclass
class _Walk:
    """Goes through the tree once; `line` collects the inline text of the block at hand."""

    drafts: list[Draft] = field(default_factory=list)
    line: list[str] = field(default_factory=list)
    place: str | None = None

    def block(self, element: Element, place: str | None) -> None:
        for child in element.children:
            if isinstance(child, str):
                self._inline(child, place)
            elif not _skipped(child, element):
                self._element(child, child.attributes.get("id") or _anchor(child) or place)

    def finish(self) -> None:
        paragraphs = _BREAKS.split("".join(self.line))
        self.line = []
        self.drafts += [Draft("paragraph", words, element=self.place) for part in paragraphs if (words := _squeeze(part))]

    def _inline(self, words: str, place: str | None) -> None:
        if not "".join(self.line).strip():
            self.place = place
        self.line.append(words)

    def _element(self, element: Element, place: str | None) -> None:
        if element.tag == "br":
            self._inline(_BREAK, place)
        elif element.tag == "img":
            self._inline(f" {_squeeze(element.attributes.get('alt', ''))} ", place)
        elif element.tag in _BLOCKS:
            self.finish()
            self._whole(element, place)
            self.finish()
        else:
            self._maybe_mixed(element, place)

    def _maybe_mixed(self, element: Element, place: str | None) -> None:
        if any(inner.tag in _BLOCKS for inner in element.descendants()):
            self.block(element, place)
        else:
            self._inline(inline(element), place)

    def _whole(self, element: Element, place: str | None) -> None:
        match element.tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._add(Draft("heading", _squeeze(inline(element)), level=int(element.tag[1]), element=place))
            case "pre":
                self._add(_code(element, place))
            case "ul" | "ol" | "dl":
                self._add(Draft("list", "\n".join(_items(element, 0)), element=place))
            case "table":
                self._table(element, place)
            case "figcaption":
                self._add(Draft("caption", _squeeze(inline(element)), element=place))
            case _:
                self.block(element, place)

    def _table(self, element: Element, place: str | None) -> None:
        for caption in (child for child in element.elements() if child.tag == "caption"):
            self._add(Draft("caption", _squeeze(inline(caption)), element=place))
        rows, headers = grid(element)
        if _is_layout(element, rows):
            for row in _rows(element):
                for cell in row.elements():
                    self.block(cell, place)
                    self.finish()
        elif rows:
            body, end = table(rows, headers)
            self._add(Draft("table", body, header_end=end, element=place))

    def _add(self, draft: Draft) -> None:
        if draft.text.strip():
            self.drafts.append(draft)


def _skipped(element: Element, parent: Element) -> bool:
    attributes = element.attributes
    if element.tag in _SKIPPED or attributes.get("role") in _ROLES or "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    if element.tag in ("div", "ul", "ol", "span", "section", "table") and _CHROME.search(f"{attributes.get('id', '')} {attributes.get('class', '')}"):
        return True
    if "display:none" in attributes.get("style", "").replace(" ", ""):
        return True
    return element.tag == "header" and parent.tag == "body" and not any(inner.tag == "h1" for inner in element.descendants())


def _anchor(element: Element) -> str | None:
    """Headings often carry their id on an empty link inside."""
    if element.tag[0] == "h" and element.tag[1:].isdigit():
        return next((inner.attributes["id"] for inner in element.elements() if "id" in inner.attributes), None)
    return None


def inline(element: Element) -> str:
    """The text of an element with code marked; links and emphasis give their words only."""
    parts = []
    for child in element.children:
        if isinstance(child, str):
            parts.append(child)
        elif child.tag == "br":
            parts.append(_BREAK)
        elif child.tag == "img":
            parts.append(child.attributes.get("alt", ""))
        elif child.tag in ("code", "kbd", "samp") and (words := _squeeze(child.words())):
            parts.append(f"`{words}`" if "`" not in words else words)
        elif not _skipped(child, element):
            parts.append(f" {inline(child)} " if child.tag in _BLOCKS else inline(child))
    return "".join(parts)


def _code(element: Element, place: str | None) -> Draft:
    inner = next((child for child in element.elements() if child.tag == "code"), element)
    named = _CODE_LANGUAGE.search(" ".join((inner.attributes.get("class", ""), element.attributes.get("class", ""))))
    return code(element.words(), named[1].lower() if named else None, element=place)


def code(source: str, language: str | None, **where: str | None) -> Draft:
    """A fenced block, with a fence longer than any in the source."""
    source = source.strip("\n").rstrip()
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return Draft("code", f"{fence}{language or ''}\n{source}\n{fence}" if source.strip() else "", language=language, element=where.get("element"))


def _items(element: Element, depth: int) -> Iterator[str]:
    number = 0
    for child in element.elements():
        if child.tag in ("ul", "ol", "dl"):
            yield from _items(child, depth + 1)
            continue
        if _skipped(child, element):
            continue
        number += 1
        mark = f"{number}." if element.tag == "ol" else "-"
        nested = [inner for inner in child.elements() if inner.tag in ("ul", "ol", "dl")]
        own = Element(child.tag, {}, [part for part in child.children if not (isinstance(part, Element) and part in nested)])
        if words := _squeeze(inline(own)):
            yield f"{'   ' * depth}{mark} {words}"
        for inner in nested:
            yield from _items(inner, depth + 1)


def _rows(element: Element) -> Iterator[Element]:
    for child in element.elements():
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child.elements() if row.tag == "tr")


def grid(element: Element) -> tuple[list[list[str]], int]:
    """Cells by row, with a spanned cell's text in each place it covers, and the number of header rows (at least 1)."""
    rows: list[list[str]] = []
    below: dict[tuple[int, int], str] = {}
    headers = 0
    for i, row in enumerate(_rows(element)):
        cells = [cell for cell in row.elements() if cell.tag in ("td", "th")]
        headers += i == headers and bool(cells) and all(cell.tag == "th" for cell in cells)
        rows.append(_row(i, cells, below))
    rows = [row for row in rows if any(row)]
    return rows, min(max(1, headers), len(rows))


def _row(i: int, cells: list[Element], below: dict[tuple[int, int], str]) -> list[str]:
    row: list[str] = []
    for cell in cells:
        while (i, len(row)) in below:
            row.append(below[i, len(row)])
        words = _squeeze(inline(cell))
        across, down = (_span(cell.attributes.get(name, "1")) for name in ("colspan", "rowspan"))
        for column in range(len(row), len(row) + across):
            below.update({(i + j, column): words for j in range(1, down)})
        row.extend([words] * across)
    while (i, len(row)) in below:
        row.append(below[i, len(row)])
    return row


def _span(stated: str) -> int:
    return min(max(int(stated), 1), 200) if stated.isdigit() else 1


def _is_layout(element: Element, rows: list[list[str]]) -> bool:
    """A table that only arranges the page: one cell, or holding tables, headings or several paragraphs in a cell."""
    if element.attributes.get("role") in ("presentation", "none") or (len(rows) <= 1 and max((len(row) for row in rows), default=0) <= 1):
        return True
    return any(inner.tag in ("table", "h1", "h2", "h3", "article", "section") for inner in element.descendants())
