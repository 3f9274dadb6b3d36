"""Conversion of single HTML elements to Markdown, and detection of navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engines.parse.html_tree import HtmlElement
from engines.parse.limits import spend
from engines.parsed_blocks import ParsedBlock, has_header

_SKIPPED_TAGS = frozenset(
    "script style noscript template svg iframe object nav footer aside form button select input textarea dialog head math audio video canvas map".split()  # noqa: SIM905
)
_SKIPPED_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "search", "complementary", "dialog", "menu", "menubar"}
)
BLOCK_TAGS = frozenset(
    "address article blockquote body center dd details div dl dt fieldset figcaption figure footer h1 h2 h3 h4 h5 h6 header hr html li main ol p pre section summary table ul".split()  # noqa: SIM905
)
LINE_BREAK = "\u2028"
PARAGRAPH_BREAK = re.compile(r"\u2028\s*\u2028")
"""Two consecutive line breaks end a paragraph."""
_CHROME_NAMES = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|breadcrumbs?|sidebar|cookies?|pagination|lang|toc|noprint|navbox|editsection|jump-link|share|social)(?:$|[\s_-])",
    re.I,
)
"""Ids and classes of navigation and other elements around a page's content."""
_CODE_LANGUAGE = re.compile(r"(?:lang(?:uage)?|highlight-source|brush:)[-\s]?([A-Za-z0-9+#]+)")


def collapse_whitespace(words: str) -> str:
    return " ".join(words.split())


def is_skipped(element: HtmlElement, parent: HtmlElement) -> bool:
    attributes = element.attributes
    if (
        element.tag in _SKIPPED_TAGS
        or attributes.get("role") in _SKIPPED_ROLES
        or "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
    ):
        return True
    if element.tag in ("div", "ul", "ol", "span", "section", "table") and _CHROME_NAMES.search(
        f"{attributes.get('id', '')} {attributes.get('class', '')}"
    ):
        return True
    if "display:none" in attributes.get("style", "").replace(" ", ""):
        return True
    return (
        element.tag == "header"
        and parent.tag == "body"
        and not any(inner.tag == "h1" for inner in element.iter_descendants())
    )


def find_anchor(element: HtmlElement) -> str | None:
    """Return the id of an element inside a heading, where many generators put it."""
    if element.tag[0] == "h" and element.tag[1:].isdigit():
        return next(
            (
                inner.attributes["id"]
                for inner in element.iter_elements()
                if "id" in inner.attributes
            ),
            None,
        )
    return None


def format_inline(element: HtmlElement) -> str:
    """Return an element's text with code marked; links and emphasis are reduced to their words."""
    parts = []
    for child in element.children:
        if isinstance(child, str):
            parts.append(child)
        elif child.tag == "br":
            parts.append(LINE_BREAK)
        elif child.tag == "img":
            parts.append(child.attributes.get("alt", ""))
        elif child.tag in ("code", "kbd", "samp") and (
            words := collapse_whitespace(child.get_text())
        ):
            parts.append(f"`{words}`" if "`" not in words else words)
        elif not is_skipped(child, element):
            parts.append(
                f" {format_inline(child)} " if child.tag in BLOCK_TAGS else format_inline(child)
            )
    return "".join(parts)


def format_code_element(element: HtmlElement, anchor_id: str | None) -> ParsedBlock:
    inner = next((child for child in element.iter_elements() if child.tag == "code"), element)
    language_match = _CODE_LANGUAGE.search(
        " ".join((inner.attributes.get("class", ""), element.attributes.get("class", "")))
    )
    return format_code(
        element.get_text(), language_match[1].lower() if language_match else None, element=anchor_id
    )


def format_code(source: str, language: str | None, **location: str | None) -> ParsedBlock:
    """Format source code as a fenced block, with a fence longer than any in the source."""
    source = source.strip("\n").rstrip()
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return ParsedBlock(
        "code",
        f"{fence}{language or ''}\n{source}\n{fence}" if source.strip() else "",
        language=language,
        element=location.get("element"),
    )


def iter_list_items(element: HtmlElement, depth: int) -> Iterator[str]:
    number = 0
    for child in element.iter_elements():
        if child.tag in ("ul", "ol", "dl"):
            yield from iter_list_items(child, depth + 1)
            continue
        if is_skipped(child, element):
            continue
        number += 1
        marker = f"{number}." if element.tag == "ol" else "-"
        nested = [inner for inner in child.iter_elements() if inner.tag in ("ul", "ol", "dl")]
        own_element = HtmlElement(
            child.tag,
            {},
            [
                part
                for part in child.children
                if not (isinstance(part, HtmlElement) and part in nested)
            ],
        )
        if words := collapse_whitespace(format_inline(own_element)):
            yield f"{'   ' * depth}{marker} {words}"
        for inner in nested:
            yield from iter_list_items(inner, depth + 1)


def iter_rows(element: HtmlElement) -> Iterator[HtmlElement]:
    for child in element.iter_elements():
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child.iter_elements() if row.tag == "tr")


def build_grid(element: HtmlElement) -> tuple[list[list[str]], int]:
    """Return the cells by row and the number of header rows.

    A spanning cell's text is repeated in each cell it covers.

    Header rows consist of `th`, or of bold cells in the first row; otherwise `has_header` decides.
    """
    rows: list[list[str]] = []
    carried_cells: dict[tuple[int, int], str] = {}
    header_row_count = 0
    for i, row in enumerate(iter_rows(element)):
        cells = [cell for cell in row.iter_elements() if cell.tag in ("td", "th")]
        header_row_count += (
            i == header_row_count
            and bool(cells)
            and all(cell.tag == "th" or (i == 0 and _is_bold(cell)) for cell in cells)
        )
        rows.append(_fill_row(i, cells, carried_cells))
    rows = [row for row in rows if any(row)]
    if not header_row_count and rows and has_header(rows, by_convention=False):
        header_row_count = 1
    return rows, min(header_row_count, len(rows))


def _is_bold(cell: HtmlElement) -> bool:
    inner = list(cell.iter_elements())
    return (
        bool(inner)
        and all(part.tag in ("b", "strong") for part in inner)
        and not any(isinstance(part, str) and part.strip() for part in cell.children)
    )


def _fill_row(
    i: int, cells: list[HtmlElement], carried_cells: dict[tuple[int, int], str]
) -> list[str]:
    row: list[str] = []
    for cell in cells:
        while (i, len(row)) in carried_cells:
            row.append(carried_cells[i, len(row)])
        words = collapse_whitespace(format_inline(cell))
        column_span, row_span = (
            _parse_span(cell.attributes.get(name, "1")) for name in ("colspan", "rowspan")
        )
        if column_span * row_span > 1:
            spend((len(words) + len(" | ")) * column_span * row_span)
        for column in range(len(row), len(row) + column_span):
            carried_cells.update({(i + j, column): words for j in range(1, row_span)})
        row.extend([words] * column_span)
    while (i, len(row)) in carried_cells:
        row.append(carried_cells[i, len(row)])
    return row


def _parse_span(value: str) -> int:
    return min(max(int(value), 1), 200) if value.isdecimal() and len(value) < 10 else 1


def is_layout_table(element: HtmlElement, rows: list[list[str]]) -> bool:
    """Return whether a table only arranges the page.

    It then has a single cell, or contains tables, headings or sections.
    """
    if element.attributes.get("role") in ("presentation", "none") or (
        len(rows) <= 1 and max((len(row) for row in rows), default=0) <= 1
    ):
        return True
    return any(
        inner.tag in ("table", "h1", "h2", "h3", "article", "section")
        for inner in element.iter_descendants()
    )
