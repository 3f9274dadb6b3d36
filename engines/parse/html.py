"""HTML reader: the main content, each block with the nearest id that a link can target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from engines.parse import text
from engines.parse.html_marks import BLOCK_TAGS, prepare_tree
from engines.parse.html_tree import HtmlElement, parse_html
from engines.parse.notices import spend
from engines.parse.text import parse_document_date
from engines.parsed_blocks import ParsedBlock, ParsedPart, format_table, has_header
from schemas.values import BlockKind, Notice

_SKIPPED_TAGS = frozenset(
    """script style noscript template svg iframe object nav footer aside
    button dialog head audio video canvas map""".split()  # noqa: SIM905
)
_SKIPPED_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "search", "complementary", "dialog", "menu", "menubar"}
)
# Marks a `br` until white space is collapsed, which removes it.
LINE_BREAK = "\u2028"
PARAGRAPH_BREAK = re.compile(r"\u2028\s*\u2028")
"""Two consecutive line breaks end a paragraph."""
_CHROME_NAMES = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|breadcrumbs?|sidebar|cookies?|pagination|lang|toc|"
    r"noprint|navbox|editsection|jump-link|share|social)(?:$|[\s_-])",
    re.I,
)
"""Ids and classes of navigation and other elements around a page's content."""
_DATE_NAMES = frozenset(
    "article:published_time date dc.date dcterms.date citation_publication_date".split()  # noqa: SIM905
)
_CODE_LANGUAGE = re.compile(r"(?:lang(?:uage)?|highlight-source|brush:)[-\s]?([A-Za-z0-9+#]+)")


_MAX_LABEL_CHARS, _MAX_INNER_CHARS = 60, 1000


def collapse_whitespace(words: str) -> str:
    return " ".join(words.split())


def is_skipped(element: HtmlElement, parent: HtmlElement) -> bool:
    attributes = element.attributes
    is_note = "epub:type" in attributes or attributes.get("role", "").startswith("doc-")
    if (
        (element.tag in _SKIPPED_TAGS and not (element.tag in ("aside", "footer") and is_note))
        or attributes.get("role") in _SKIPPED_ROLES
        or attributes.get("aria-hidden") == "true"
    ):
        return True
    # Containers only: a heading may have the id `menu`.
    if element.tag in ("div", "ul", "ol", "span", "section", "table") and _CHROME_NAMES.search(
        f"{attributes.get('id', '')} {attributes.get('class', '')}"
    ):
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
        elif child.tag == "table":
            parts.append(f" {format_inner_table(child)} ")
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


def format_inner_table(element: HtmlElement) -> str:
    """Format a table inside a cell on one line: `Seats: 5; Disk: 20 GB`."""
    rows, header_row_count = build_grid(element)
    if header_row_count and len(rows) > header_row_count:
        names, rows = rows[header_row_count - 1], rows[header_row_count:]
        rows = [
            [f"{name} {cell}".strip() for name, cell in zip(names, row, strict=False)]
            for row in rows
        ]
        return "; ".join(", ".join(filter(None, row)) for row in rows)
    return "; ".join((": " if len(row) == 2 else ", ").join(filter(None, row)) for row in rows)


def iter_definitions(element: HtmlElement, depth: int) -> Iterator[str]:
    """Yield an item `label: value` for each term of a `dl`; terms in a row share their value."""
    groups: list[tuple[list[str], list[str]]] = []
    pending = list(element.iter_elements())[::-1]
    while pending:
        child = pending.pop()
        words = collapse_whitespace(format_inline(child)) if child.tag in ("dt", "dd") else ""
        if child.tag == "div":
            pending += list(child.iter_elements())[::-1]
        elif child.tag == "dt":
            if not groups or groups[-1][1]:
                groups.append(([], []))
            groups[-1][0].append(words.removesuffix(":"))
        elif words:
            groups = groups or [([], [])]
            groups[-1][1].append(words)
    for labels, values in groups:
        parts = (" / ".join(filter(None, labels)), "; ".join(values))
        if words := ": ".join(filter(None, parts)):
            yield f"{'   ' * depth}- {words}"


def iter_list_items(element: HtmlElement, depth: int) -> Iterator[str]:
    if element.tag == "dl":
        yield from iter_definitions(element, depth)
        return
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
        # The item without its nested lists, which follow as items of their own.
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
            min(max(int(value), 1), 200) if value.isdecimal() and len(value) < 10 else 1
            for value in (cell.attributes.get(name, "1") for name in ("colspan", "rowspan"))
        )
        if column_span * row_span > 1:
            # Counted before it is copied: a few bytes can span 200 × 200 cells.
            spend((len(words) + len(" | ")) * column_span * row_span)
        for column in range(len(row), len(row) + column_span):
            carried_cells.update({(i + j, column): words for j in range(1, row_span)})
        row.extend([words] * column_span)
    while (i, len(row)) in carried_cells:
        row.append(carried_cells[i, len(row)])
    return row


def is_layout_table(element: HtmlElement, rows: list[list[str]]) -> bool:
    """Return whether a table only arranges the page.

    It then has a single cell, or contains headings, sections or tables that are not small ones
    beside the label of their row.
    """
    if element.attributes.get("role") in ("presentation", "none") or (
        len(rows) <= 1 and max((len(row) for row in rows), default=0) <= 1
    ):
        return True
    inner_tags = {inner.tag for inner in element.iter_descendants()}
    return bool(inner_tags & {"h1", "h2", "h3", "article", "section"}) or (
        "table" in inner_tags and not _has_labeled_tables(element)
    )


def _has_labeled_tables(element: HtmlElement) -> bool:
    """Return whether each row with an inner table begins with a short label for it."""
    for row in iter_rows(element):
        cells = [cell for cell in row.iter_elements() if cell.tag in ("td", "th")]
        inner_tables = [
            inner for cell in cells for inner in cell.iter_descendants() if inner.tag == "table"
        ]
        label = cells[0].get_text().strip() if cells else ""
        if inner_tables and (
            not 0 < len(label) <= _MAX_LABEL_CHARS
            or any(inner.tag == "table" for inner in cells[0].iter_descendants())
            or any(len(inner.get_text()) > _MAX_INNER_CHARS for inner in inner_tables)
        ):
            return False
    return True


_CHARSET = re.compile(rb"<meta[^<>]+charset\s*+=\s*+[\"']?\s*+([A-Za-z0-9_-]+)", re.I)


def quote_block(block: ParsedBlock) -> ParsedBlock:
    """Return a block as a blockquote; a heading in it is none of the document's."""
    body = "\n".join(f"> {line}" for line in block.text.split("\n"))
    return ParsedBlock("paragraph", body, element=block.element)


def read(data: bytes, *, marks_quotes: bool = False, style_sheets: str = "") -> ParsedPart:
    """Read a page; `marks_quotes` keeps blockquotes apart, in which mail has older mail.

    `style_sheets` holds the rules of linked files, as far as they are known.
    """
    declared = _CHARSET.search(data[:4096])
    decoded = text.decode_text(data, declared[1].decode() if declared else None)
    root = parse_html(decoded.text)
    hidden_notices = prepare_tree(root, style_sheets)
    # Reversed, so that the first element with a tag wins.
    first_by_tag = {element.tag: element for element in reversed(list(root.iter_descendants()))}
    declared_language = (
        first_by_tag["html"].attributes.get("lang", "") if "html" in first_by_tag else ""
    )
    walker = _HtmlWalker(marks_quotes=marks_quotes)
    main = _find_main(root)
    walker.walk_children(main, main.attributes.get("id"))
    walker.flush_line()
    canonical_notices = [
        Notice(code="CANONICAL_URL", detail=element.attributes["href"])
        for element in root.iter_descendants()
        if element.tag == "link"
        and "canonical" in element.attributes.get("rel", "").lower()
        and element.attributes.get("href")
    ][:1]
    return ParsedPart(
        walker.blocks,
        title=_find_title(first_by_tag),
        language=declared_language.split("-")[0].strip().lower() or None,
        document_date=parse_document_date(_find_date(root)),
        notices=[*decoded.notices, *hidden_notices, *canonical_notices],
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


def _find_date(root: HtmlElement) -> str | None:
    for element in root.iter_descendants():
        attributes = element.attributes
        name = attributes.get("property") or attributes.get("name") or ""
        if element.tag == "meta" and name.lower() in _DATE_NAMES:
            return attributes.get("content")
    return None


@dataclass
class _HtmlWalker:
    """Converts a tree to blocks in one pass; `line` collects the current block's inline text."""

    marks_quotes: bool = False
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
        elif any(inner.tag in BLOCK_TAGS for inner in element.iter_descendants()):
            self.walk_children(element, anchor_id)
        else:
            self._append_inline(format_inline(element), anchor_id)

    def _walk_block(self, element: HtmlElement, anchor_id: str | None) -> None:
        match element.tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._add_words("heading", element, anchor_id, int(element.tag[1]))
            case "blockquote" if self.marks_quotes:
                start = len(self.blocks)
                self.walk_children(element, anchor_id)
                self.flush_line()
                self.blocks[start:] = map(quote_block, self.blocks[start:])
            case "pre":
                self._add(format_code_element(element, anchor_id))
            case "ul" | "ol" | "dl":
                self._add(
                    ParsedBlock("list", "\n".join(iter_list_items(element, 0)), element=anchor_id)
                )
            case "table":
                self._add_table(element, anchor_id)
            case "figcaption":
                self._add_words("caption", element, anchor_id)
            case _:
                self.walk_children(element, anchor_id)

    def _add_table(self, element: HtmlElement, anchor_id: str | None) -> None:
        for caption in (child for child in element.iter_elements() if child.tag == "caption"):
            self._add_words("caption", caption, anchor_id)
        rows, header_row_count = build_grid(element)
        if is_layout_table(element, rows):
            for row in iter_rows(element):
                for cell in row.iter_elements():
                    self.walk_children(cell, anchor_id)
                    self.flush_line()
        elif rows:
            body, end, _ = format_table(rows, header_row_count)
            self._add(ParsedBlock("table", body, header_end=end, element=anchor_id))

    def _add_words(
        self, kind: BlockKind, element: HtmlElement, anchor_id: str | None, level: int | None = None
    ) -> None:
        words = collapse_whitespace(format_inline(element))
        self._add(ParsedBlock(kind, words, level=level, element=anchor_id))

    def _add(self, block: ParsedBlock) -> None:
        if block.text.strip():
            self.blocks.append(block)
