"""Reader of XLSX worksheets: cells as the spreadsheet program shows them.

Source: ECMA-376 part 1, 18.3.1 (worksheets), 18.4 (shared strings), 18.8 (styles).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import IO
from xml.etree import ElementTree

from engines.parse.notices import WHITE, Color, is_unseen, parse_color
from engines.parse.number_formats import BUILT_IN_FORMATS, format_cell_number, format_text
from engines.parse.scripts import apply_marks, format_struck
from engines.parse.sheets import Sheet, StoredSheet, parse_address, parse_range
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_relation,
    iter_children,
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
    sheet, row, has_other_fills = Sheet(name), -1, False
    with workbook.archive.open(part) as stream:
        # Row by row, because a tree of a large sheet is huge.
        for _, element in ElementTree.iterparse(stream):
            match strip_namespace(element.tag):
                case "row":
                    row = _read_row(workbook, sheet, element, row)
                    element.clear()
                case "col" if _is_hidden(element, "width"):
                    first, last = int(element.attrib["min"]), int(element.attrib["max"])
                    sheet.hidden_columns |= set(range(first - 1, min(last, _MAX_COLUMNS)))
                case "mergeCell":
                    if merged := parse_range(element.get("ref", "")):
                        sheet.merged.append(merged)
                case "conditionalFormatting" | "tablePart":
                    # They may color the ground of the text.
                    has_other_fills = True
    if not has_other_fills:
        sheet.hidden_cells |= sheet.unseen_cells
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


def _read_row(workbook: Workbook, sheet: Sheet, element: Element, last_row: int) -> int:
    """Add the cells of a row and return its number."""
    row, column = int(element.get("r", last_row + 2)) - 1, -1
    if _is_hidden(element, "ht"):
        sheet.hidden_rows.add(row)
    for cell in iter_children(element, "c"):
        row, column = parse_address(cell.get("r", "")) or (row, column + 1)
        kind, index = cell.get("t", "n"), int(cell.get("s", 0))
        style = workbook.styles[index] if index < len(workbook.styles) else CellStyle()
        parts = {strip_namespace(part.tag): part for part in cell}
        value = (parts["v"].text or "") if "v" in parts else ""
        if "f" in parts and not value.strip() and kind != "str":
            sheet.unsaved_formulas.append((row, column))
        if kind == "inlineStr":
            value = "".join(_iter_runs(parts.get("is", ())))
        workbook.add_cell(sheet, row, column, kind, value, style)
    return row


def _is_hidden(element: Element, size: str) -> bool:
    is_marked = element.get("hidden", "0") in ("1", "true")
    return is_marked or not element.get(size, "1").strip("0.")


def _read_strings(stream: IO[bytes]) -> Iterator[str]:
    for _, element in ElementTree.iterparse(stream):
        if strip_namespace(element.tag) == "si":
            yield "".join(_iter_runs(element))
            element.clear()


def _iter_runs(item: Iterable[Element]) -> Iterator[str]:
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
