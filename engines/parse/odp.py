"""Reader of ODP slides: titles, texts, tables and notes, without what a reader cannot see.

Source: OpenDocument 1.3, part 3, 10.2 (pages), 10.4 (frames).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engines.parse.header_rows import merge_header_rows
from engines.parse.notices import (
    WHITE,
    Color,
    is_hidden_text_kept,
    is_off_page,
    list_notices,
    make_corrupt_error,
)
from engines.parse.opendocument import (
    CONTENT,
    HiddenText,
    Marks,
    format_body,
    list_embedded,
    read_fills,
    read_marks,
    read_paragraph,
)
from engines.parse.sheets import Sheet, build_grid
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_attribute,
    iter_children,
    iter_named,
    read_xml,
    refuse_damaged_parts,
    strip_namespace,
)
from engines.parsed_blocks import ParsedBlock, ParsedPart, clamp_box, format_table
from schemas.values import Box

_LENGTH = re.compile(r"(-?\d+(?:\.\d+)?)(cm|mm|in|pt|pc|px)?")
_CENTIMETERS = {"cm": 1.0, "mm": 0.1, "in": 2.54, "pt": 2.54 / 72, "pc": 2.54 / 6, "px": 2.54 / 96}
_SHAPES = frozenset(
    "frame custom-shape rect ellipse circle line path polygon polyline caption connector".split()  # noqa: SIM905
)
_TITLES = ("title",)


@dataclass
class _SlideReader:
    marks: Marks
    fills: dict[str, Color | None]
    ground: Color | None
    width: float
    height: float
    hidden: list[str] = field(default_factory=list)

    def read(self, slide: Element, number: int) -> Iterator[ParsedBlock]:
        ground = self.fills.get(get_attribute(slide, "style-name"), self.ground)
        if any(find_named(shape, "image") is not None for shape in slide):
            ground = None
        for shape in slide:
            yield from self._read_shape(shape, number, ground)
        notes = find_named(slide, "notes")
        for frame in iter_named(notes, "frame") if notes is not None else ():
            if words := format_body(frame, self.marks):
                yield ParsedBlock("paragraph", words, page=number)

    def _read_shape(
        self, shape: Element, number: int, ground: Color | None
    ) -> Iterator[ParsedBlock]:
        name = strip_namespace(shape.tag)
        if name in ("g", "a"):
            for child in shape:
                yield from self._read_shape(child, number, ground)
        if name not in _SHAPES:
            return
        bounds = self._find_bounds(shape)
        if bounds is not None and is_off_page(bounds, self.width, self.height):
            if words := format_body(shape, self.marks):
                self.hidden.append(f'"{words[:60]}" off slide {number}')
            if not is_hidden_text_kept():
                return
        box = self._to_box(bounds)
        style = get_attribute(shape, "style-name")
        own_ground = self.fills.get(style, ground)
        table = find_named(shape, "table")
        if table is not None:
            yield from self._read_table(table, number, box)
            return
        body = find_named(shape, "text-box")
        paragraphs = list(iter_named(body if body is not None else shape, "p", "h"))
        texts = self._read_paragraphs(paragraphs, style, own_ground, number)
        listed = {
            id(paragraph)
            for item in iter_named(shape, "list-item")
            for paragraph in iter_named(item, "p")
        }
        lines = [
            f"- {text}" if id(paragraph) in listed else text
            for paragraph, text in zip(paragraphs, texts, strict=True)
            if text
        ]
        if get_attribute(shape, "class") in _TITLES and lines:
            yield ParsedBlock("heading", " ".join(texts), level=1, page=number, box=box)
        elif lines and listed:
            yield ParsedBlock("list", "\n".join(lines), page=number, box=box)
        else:
            for line in lines:
                yield ParsedBlock("paragraph", line, page=number, box=box)

    def _read_table(self, table: Element, number: int, box: Box | None) -> Iterator[ParsedBlock]:
        grid = Sheet("")
        for row, line in enumerate(iter_named(table, "table-row")):
            cells = iter_children(line, "table-cell", "covered-table-cell")
            for column, cell in enumerate(cells):
                height, width = (
                    int(get_attribute(cell, f"number-{name}-spanned", "1"))
                    for name in ("rows", "columns")
                )
                if height > 1 or width > 1:
                    grid.merged.append((row, column, row + height - 1, column + width - 1))
                grid.add(row, column, self._read_cell(cell, number))
        if grid.cells:
            text, end, _ = format_table(*merge_header_rows(build_grid(grid).rows))
            yield ParsedBlock("table", text, header_end=end, page=number, box=box)

    def _read_cell(self, cell: Element, number: int) -> str:
        style = get_attribute(cell, "style-name")
        # Cells without a color of their own have that of the table's template, which is not read.
        ground = self.fills.get(style)
        return " ".join(
            filter(None, self._read_paragraphs(iter_named(cell, "p"), style, ground, number))
        )

    def _read_paragraphs(
        self, paragraphs: Iterable[Element], style: str, ground: Color | None, number: int
    ) -> list[str]:
        """Return the texts of a shape or cell with this style, without those not seen on it."""
        hidden, inherited = HiddenText(ground), self.marks.get(style, {})
        texts = [read_paragraph(item, self.marks, hidden, inherited) for item in paragraphs]
        self.hidden += [f'"{words[:60]}" on slide {number}' for words in hidden.texts]
        return texts

    def _find_bounds(self, shape: Element) -> tuple[float, float, float, float] | None:
        """Return the shape's place in centimeters, None if it is turned or has none."""
        left, top, width, height = (
            parse_length(get_attribute(shape, name)) for name in ("x", "y", "width", "height")
        )
        if left is None or top is None or width is None or get_attribute(shape, "transform"):
            return None
        return left, top, left + width, top + (height or 0.01)

    def _to_box(self, bounds: tuple[float, float, float, float] | None) -> Box | None:
        if bounds is None:
            return None
        left, top, right, bottom = bounds
        width, height = self.width, self.height
        return clamp_box((left / width, top / height, right / width, bottom / height))


def read(path: Path) -> ParsedPart:
    """Read the slides as pages. Hidden slides are left out, and named in the notices."""
    part = ParsedPart()
    with refuse_damaged_parts("presentation"), zipfile.ZipFile(path) as archive:
        root = read_xml(archive, CONTENT)
        styles = [read_xml(archive, "styles.xml")] if "styles.xml" in archive.namelist() else []
        hidden_styles = {
            get_attribute(style, "name")
            for style in iter_named(root, "style")
            if (properties := find_named(style, "drawing-page-properties")) is not None
            and get_attribute(properties, "visibility") == "hidden"
        }
        body = find_named(root, "body", "presentation")
        if body is None:
            raise make_corrupt_error("The presentation has no slides.")
        slides = list(iter_children(body, "page"))
        master = get_attribute(slides[0], "master-page-name") if slides else ""
        fills = read_fills([*styles, root])
        reader = _SlideReader(
            read_marks(archive),
            fills,
            _find_master_ground(styles, master, fills),
            *_find_page_size(styles, master),
        )
        for number, slide in enumerate(slides, 1):
            if get_attribute(slide, "style-name") in hidden_styles:
                reader.hidden.append(f"slide {number}")
                if not is_hidden_text_kept():
                    continue
            part.blocks += reader.read(slide, number)
        embedded = list_embedded(archive)
    part.notices = list_notices(reader.hidden, embedded)
    part.title = next((block.text for block in part.blocks if block.kind == "heading"), None)
    return part


def parse_length(value: str) -> float | None:
    """Return a length in centimeters."""
    match = _LENGTH.fullmatch(value)
    return float(match[1]) * _CENTIMETERS[match[2] or "cm"] if match else None


def _find_page_size(styles: list[Element], master: str) -> tuple[float, float]:
    """Return width and height of the slides, which are those of their master."""
    for root in styles:
        layout = next(
            (
                get_attribute(page, "page-layout-name")
                for page in iter_named(root, "master-page")
                if get_attribute(page, "name") == master
            ),
            "",
        )
        for page in iter_named(root, "page-layout"):
            properties = find_named(page, "page-layout-properties")
            if get_attribute(page, "name") == layout and properties is not None:
                width = parse_length(get_attribute(properties, "page-width"))
                height = parse_length(get_attribute(properties, "page-height"))
                if width and height:
                    return width, height
    # Larger than any slide, so that nothing counts as outside.
    return 200.0, 200.0


def _find_master_ground(
    styles: list[Element], master: str, fills: dict[str, Color | None]
) -> Color | None:
    """Return the color of the master's slides, None if pictures or shapes are on it."""
    for root in styles:
        for page in iter_named(root, "master-page"):
            if get_attribute(page, "name") != master:
                continue
            is_painted = any(
                strip_namespace(shape.tag) in _SHAPES
                and not get_attribute(shape, "class")
                and (
                    get_attribute(shape, "style-name") in fills
                    or find_named(shape, "image") is not None
                )
                for shape in page
            )
            return None if is_painted else fills.get(get_attribute(page, "style-name"), WHITE)
    return WHITE
