"""Reader of XLSX worksheets: cells as the spreadsheet program shows them.

Source: ECMA-376 part 1, 18.3.1 (worksheets), 18.4 (shared strings), 18.8 (styles).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import IO
from xml.etree import ElementTree
from xml.parsers import expat

from engines.parse.notices import WHITE, Color, is_unseen, parse_color
from engines.parse.number_formats import BUILT_IN_FORMATS, format_cell_number, format_text
from engines.parse.scripts import apply_marks, format_struck
from engines.parse.sheets import Sheet, StoredSheet, parse_address, parse_range
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_relation,
    iter_named,
    read_color_scheme,
    read_relations,
    read_words,
    read_xml,
    strip_namespace,
)

WORKBOOK = "xl/workbook.xml"
_PALETTE = "000000 ffffff ff0000 00ff00 0000ff ffff00 ff00ff 00ffff"
INDEXED_COLORS: dict[int, Color | None] = {
    **{i + shift: parse_color(name) for i, name in enumerate(_PALETTE.split()) for shift in (0, 8)},
    64: (0, 0, 0),
    65: WHITE,
}
"""The system's colors and the first of the palette, by the numbers that cells use."""
_THEME_ORDER = ("lt1", "dk1", "lt2", "dk2")
"""Colors of a theme that cells count in another order than the theme does."""
_BLOCK_BYTES = 2**18
_MAX_COLUMNS = 16_384


@dataclass(slots=True)
class CellStyle:
    code: str = ""
    is_struck: bool = False
    is_unseen: bool = False


@dataclass(slots=True)
class Workbook:
    archive: zipfile.ZipFile
    styles: list[CellStyle] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    is_1904: bool = False

    @classmethod
    def open(cls, archive: zipfile.ZipFile, relations: dict[str, tuple[str, str]]) -> Workbook:
        parts = dict(relations.values())
        names = set(archive.namelist())
        styles, strings = parts.get("styles", ""), parts.get("sharedStrings", "")
        theme = parts.get("theme", "")
        colors = read_theme(read_xml(archive, theme) if theme in names else None)
        return cls(
            archive,
            _read_styles(read_xml(archive, styles), colors) if styles in names else [],
            list(_read_strings(archive.open(strings))) if strings in names else [],
        )

    def add_cell(
        self, sheet: Sheet, row: int, column: int, kind: str, value: str, style: CellStyle
    ) -> None:
        """Add a stored value as the cell's type and style show it."""
        stored = value
        if kind == "s":
            index = int(value or -1)
            stored = self.strings[index] if 0 <= index < len(self.strings) else ""
        text = self._format(kind, stored, style)
        sheet.add(row, column, format_struck(text) if style.is_struck else text, stored)
        if style.is_unseen and (row, column) in sheet.cells:
            sheet.unseen_cells.add((row, column))

    def _format(self, kind: str, stored: str, style: CellStyle) -> str:
        match kind:
            case "b":
                return "TRUE" if stored.strip() == "1" else "FALSE" if stored else ""
            case "n" | "" if stored.strip():
                return format_cell_number(float(stored), style.code, is_1904=self.is_1904)
            case "s" | "str" | "inlineStr" if style.code not in ("", "@"):
                return format_text(stored, style.code)
        return stored


def read_sheets(archive: zipfile.ZipFile, embedded: list[str]) -> Iterator[StoredSheet]:
    root = read_xml(archive, WORKBOOK)
    relations = read_relations(archive, WORKBOOK)
    workbook = Workbook.open(archive, relations)
    properties = find_named(root, "workbookPr")
    if properties is not None:
        workbook.is_1904 = properties.get("date1904", "") in ("1", "true")
    for element in iter_named(root, "sheet"):
        kind, part = relations.get(get_relation(element), ("", ""))
        if kind == "worksheet":
            name, is_hidden = element.get("name", ""), element.get("state", "visible") != "visible"
            yield StoredSheet(name, is_hidden, partial(_read_sheet, workbook, name, part, embedded))


def _read_sheet(workbook: Workbook, name: str, part: str, embedded: list[str]) -> Sheet:
    parser = _SheetParser(workbook, Sheet(name))
    with workbook.archive.open(part) as stream:
        parser.parse(stream)
    sheet = parser.sheet
    for kind, target in read_relations(workbook.archive, part).values():
        if target not in workbook.archive.namelist():
            continue
        if kind == "comments":
            sheet.remarks += [
                f"{comment.get('ref', '')}: {words}"
                for comment in iter_named(read_xml(workbook.archive, target), "comment")
                if (words := read_words(comment))
            ]
        elif kind == "drawing":
            bodies = iter_named(read_xml(workbook.archive, target), "txBody")
            sheet.remarks += filter(None, map(read_words, bodies))
        elif kind in ("oleObject", "package"):
            embedded.append(target.rpartition("/")[2])
    return sheet


class _SheetParser:
    """Streams the XML of one sheet, because a tree of a large sheet is huge."""

    def __init__(self, workbook: Workbook, sheet: Sheet) -> None:
        self.workbook, self.sheet = workbook, sheet
        self._row, self._column = -1, -1
        self._kind, self._style = "", CellStyle()
        self._value: list[str] = []
        self._runs: list[str] = []
        self._run_style: set[str] = set()
        self._text: list[str] | None = None
        self._has_formula = self._is_reading_aid = False
        self._has_other_fills = False

    def parse(self, stream: IO[bytes]) -> None:
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text
        for block in iter(lambda: stream.read(_BLOCK_BYTES), b""):
            parser.Parse(block, False)
        parser.Parse(b"", True)
        if not self._has_other_fills:
            self.sheet.hidden_cells |= self.sheet.unseen_cells

    def _add_text(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        match strip_namespace(tag):
            case "c":
                self._start_cell(attributes)
            case "v":
                self._text = self._value
            case "f":
                self._has_formula = True
            case "t":
                self._text = []
            case "r" | "rPh" as kind:
                self._run_style, self._is_reading_aid = set(), kind == "rPh"
            case "strike" | "vertAlign" as mark:
                if attributes.get("val", "1") not in ("0", "false", "baseline"):
                    is_script = mark == "vertAlign"
                    self._run_style.add(attributes.get("val", "") if is_script else "struck")
            case "row":
                self._row = int(attributes["r"]) - 1 if "r" in attributes else self._row + 1
                self._column = -1
                if _is_hidden(attributes, "ht"):
                    self.sheet.hidden_rows.add(self._row)
            case "col" if _is_hidden(attributes, "width"):
                first, last = int(attributes["min"]), int(attributes["max"])
                self.sheet.hidden_columns |= set(range(first - 1, min(last, _MAX_COLUMNS)))
            case "mergeCell":
                if merged := parse_range(attributes.get("ref", "")):
                    self.sheet.merged.append(merged)
            case "conditionalFormatting" | "tablePart":
                # They may color the ground of the text.
                self._has_other_fills = True

    def _start_cell(self, attributes: dict[str, str]) -> None:
        address = parse_address(attributes.get("r", ""))
        self._row, self._column = address or (self._row, self._column + 1)
        styles, index = self.workbook.styles, int(attributes.get("s", 0))
        self._style = styles[index] if index < len(styles) else CellStyle()
        self._kind = attributes.get("t", "n")
        self._value, self._runs, self._text, self._has_formula = [], [], None, False

    def _end(self, tag: str) -> None:
        match strip_namespace(tag):
            case "t":
                if not self._is_reading_aid:
                    self._runs.append(apply_marks("".join(self._text or ()), self._run_style))
                self._text = None
            case "v":
                self._text = None
            case "r" | "rPh" | "is":
                self._run_style, self._is_reading_aid = set(), False
            case "c":
                value = "".join(self._value)
                if self._has_formula and not value.strip() and self._kind != "str":
                    self.sheet.unsaved_formulas.append((self._row, self._column))
                if self._kind == "inlineStr":
                    value = "".join(self._runs)
                self.workbook.add_cell(
                    self.sheet, self._row, self._column, self._kind, value, self._style
                )


def _is_hidden(attributes: dict[str, str], size: str) -> bool:
    is_marked = attributes.get("hidden", "0") in ("1", "true")
    return is_marked or not attributes.get(size, "1").strip("0.")


def _read_strings(stream: IO[bytes]) -> Iterator[str]:
    for _, element in ElementTree.iterparse(stream):
        if strip_namespace(element.tag) == "si":
            yield "".join(_iter_runs(element))
            element.clear()


def _iter_runs(item: Element) -> Iterator[str]:
    for child in item:
        kind = strip_namespace(child.tag)
        if kind == "t":
            yield child.text or ""
        elif kind == "r":
            marks = set()
            for mark in iter_named(child, "strike", "vertAlign"):
                value = mark.get("val", "1")
                if strip_namespace(mark.tag) == "vertAlign":
                    marks.add(value)
                elif value not in ("0", "false"):
                    marks.add("struck")
            text = find_named(child, "t")
            yield apply_marks((text.text if text is not None else "") or "", marks)


def read_theme(root: Element | None) -> list[Color | None]:
    """Return the theme's colors in the order of cells."""
    colors = read_color_scheme(root) if root is not None else {}
    if not colors:
        return [WHITE, (0, 0, 0)]
    return [colors.pop(name, None) for name in _THEME_ORDER] + list(colors.values())


def _read_styles(root: Element, theme: list[Color | None]) -> list[CellStyle]:
    codes = dict(BUILT_IN_FORMATS)
    for element in iter_named(root, "numFmt"):
        if "numFmtId" in element.attrib:
            codes[int(element.attrib["numFmtId"])] = element.get("formatCode", "")
    fonts = list(find_named(root, "fonts") or ())
    grounds = [_read_ground(fill, theme) for fill in find_named(root, "fills") or ()]
    styles = []
    for element in find_named(root, "cellXfs") or ():
        code = codes.get(int(element.get("numFmtId", 0)), "")
        number, fill = int(element.get("fontId", 0)), int(element.get("fillId", 0))
        font = fonts[number] if number < len(fonts) else None
        size = find_named(font, "sz")
        is_hidden = is_unseen(
            _read_color(find_named(font, "color"), theme),
            grounds[fill] if fill < len(grounds) else WHITE,
            float(size.get("val", "0")) if size is not None else None,
        )
        strike = find_named(font, "strike")
        is_struck = strike is not None and strike.get("val", "1") not in ("0", "false")
        styles.append(CellStyle("" if code == "General" else code, is_struck, is_hidden))
    return styles


def _read_color(color: Element | None, theme: list[Color | None]) -> Color | None:
    """Return a color by its value, its place in the theme or its index; None for a tinted one."""
    if color is None or float(color.get("tint", "0")):
        return None
    if "rgb" in color.attrib:
        return parse_color(color.attrib["rgb"][-6:])
    if "theme" in color.attrib:
        return dict(enumerate(theme)).get(int(color.attrib["theme"]))
    return INDEXED_COLORS.get(int(color.get("indexed", "-1")))


def _read_ground(fill: Element, theme: list[Color | None]) -> Color | None:
    pattern = find_named(fill, "patternFill")
    if pattern is None:
        return None  # a gradient
    kind = pattern.get("patternType", "none")
    if kind == "none":
        return WHITE
    return _read_color(find_named(pattern, "fgColor"), theme) if kind == "solid" else None
