"""Single elements of HTML to Markdown: inline text, code, lists, tables; and what is no content at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engines.drafts import Draft, has_header
from engines.parse.html_tree import Element
from engines.parse.limits import spend

_SKIPPED = frozenset(
    "script style noscript template svg iframe object nav footer aside form button select input textarea dialog head math audio video canvas map".split()  # noqa: SIM905
)
_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary", "dialog", "menu", "menubar"})
BLOCKS = frozenset(
    "address article blockquote body center dd details div dl dt fieldset figcaption figure footer h1 h2 h3 h4 h5 h6 header hr html li main ol p pre section summary table ul".split()  # noqa: SIM905
)
BREAK = "\u2028"
BREAKS = re.compile(r"\u2028\s*\u2028")
"""Two line breaks in a row end a paragraph."""
_CHROME = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|breadcrumbs?|sidebar|cookies?|pagination|lang|toc|noprint|navbox|editsection|jump-link|share|social)(?:$|[\s_-])",
    re.I,
)
"""Names (id, class) of what surrounds a page's content."""
_CODE_LANGUAGE = re.compile(r"(?:lang(?:uage)?|highlight-source|brush:)[-\s]?([A-Za-z0-9+#]+)")


def squeeze(words: str) -> str:
    return " ".join(words.split())


def skipped(element: Element, parent: Element) -> bool:
    attributes = element.attributes
    if element.tag in _SKIPPED or attributes.get("role") in _ROLES or "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    if element.tag in ("div", "ul", "ol", "span", "section", "table") and _CHROME.search(f"{attributes.get('id', '')} {attributes.get('class', '')}"):
        return True
    if "display:none" in attributes.get("style", "").replace(" ", ""):
        return True
    return element.tag == "header" and parent.tag == "body" and not any(inner.tag == "h1" for inner in element.descendants())


def anchor(element: Element) -> str | None:
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
            parts.append(BREAK)
        elif child.tag == "img":
            parts.append(child.attributes.get("alt", ""))
        elif child.tag in ("code", "kbd", "samp") and (words := squeeze(child.words())):
            parts.append(f"`{words}`" if "`" not in words else words)
        elif not skipped(child, element):
            parts.append(f" {inline(child)} " if child.tag in BLOCKS else inline(child))
    return "".join(parts)


def code_of(element: Element, place: str | None) -> Draft:
    inner = next((child for child in element.elements() if child.tag == "code"), element)
    named = _CODE_LANGUAGE.search(" ".join((inner.attributes.get("class", ""), element.attributes.get("class", ""))))
    return code(element.words(), named[1].lower() if named else None, element=place)


def code(source: str, language: str | None, **where: str | None) -> Draft:
    """A fenced block, with a fence longer than any in the source."""
    source = source.strip("\n").rstrip()
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return Draft("code", f"{fence}{language or ''}\n{source}\n{fence}" if source.strip() else "", language=language, element=where.get("element"))


def items(element: Element, depth: int) -> Iterator[str]:
    number = 0
    for child in element.elements():
        if child.tag in ("ul", "ol", "dl"):
            yield from items(child, depth + 1)
            continue
        if skipped(child, element):
            continue
        number += 1
        mark = f"{number}." if element.tag == "ol" else "-"
        nested = [inner for inner in child.elements() if inner.tag in ("ul", "ol", "dl")]
        own = Element(child.tag, {}, [part for part in child.children if not (isinstance(part, Element) and part in nested)])
        if words := squeeze(inline(own)):
            yield f"{'   ' * depth}{mark} {words}"
        for inner in nested:
            yield from items(inner, depth + 1)


def rows_of(element: Element) -> Iterator[Element]:
    for child in element.elements():
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child.elements() if row.tag == "tr")


def grid(element: Element) -> tuple[list[list[str]], int]:
    """Return cells by row, with a spanned cell's text in each place it covers, and the number of header rows.

    Header rows consist of `th`, or of bold cells; else the cells below the first row tell.
    """
    rows: list[list[str]] = []
    below: dict[tuple[int, int], str] = {}
    headers = 0
    for i, row in enumerate(rows_of(element)):
        cells = [cell for cell in row.elements() if cell.tag in ("td", "th")]
        headers += i == headers and bool(cells) and all(cell.tag == "th" or (i == 0 and _is_bold(cell)) for cell in cells)
        rows.append(_row(i, cells, below))
    rows = [row for row in rows if any(row)]
    if not headers and rows and has_header(rows, by_convention=False):
        headers = 1
    return rows, min(headers, len(rows))


def _is_bold(cell: Element) -> bool:
    inner = list(cell.elements())
    return bool(inner) and all(part.tag in ("b", "strong") for part in inner) and not any(isinstance(part, str) and part.strip() for part in cell.children)


def _row(i: int, cells: list[Element], below: dict[tuple[int, int], str]) -> list[str]:
    row: list[str] = []
    for cell in cells:
        while (i, len(row)) in below:
            row.append(below[i, len(row)])
        words = squeeze(inline(cell))
        across, down = (_span(cell.attributes.get(name, "1")) for name in ("colspan", "rowspan"))
        if across * down > 1:
            spend((len(words) + len(" | ")) * across * down)
        for column in range(len(row), len(row) + across):
            below.update({(i + j, column): words for j in range(1, down)})
        row.extend([words] * across)
    while (i, len(row)) in below:
        row.append(below[i, len(row)])
    return row


def _span(stated: str) -> int:
    return min(max(int(stated), 1), 200) if stated.isdecimal() and len(stated) < 10 else 1


def is_layout(element: Element, rows: list[list[str]]) -> bool:
    """A table that only arranges the page: one cell, or holding tables, headings or several paragraphs in a cell."""
    if element.attributes.get("role") in ("presentation", "none") or (len(rows) <= 1 and max((len(row) for row in rows), default=0) <= 1):
        return True
    return any(inner.tag in ("table", "h1", "h2", "h3", "article", "section") for inner in element.descendants())
