"""Reader of XLSB worksheets, whose parts are records of a number, a size and data.

Source: MS-XLSB 2.1.4 (records), 2.5 (structures).
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from engines.parse.notices import WHITE, Color, is_unseen
from engines.parse.number_formats import BUILT_IN_FORMATS
from engines.parse.scripts import apply_run_marks
from engines.parse.sheets import Sheet, StoredSheet
from engines.parse.xlsx import INDEXED_COLORS, CellStyle, Workbook, read_theme
from engines.parse.xml_parts import read_relations, read_xml

WORKBOOK = "xl/workbook.bin"
# Record numbers of MS-XLSB 2.3.2.
_ROW, _STRING_ITEM, _FONT, _FORMAT, _FILL, _STYLE = 0, 19, 43, 44, 45, 47
_COLUMNS, _PROPERTIES, _SHEET, _MERGED = 60, 153, 156, 176
_STYLES_START, _STYLES_END = 617, 618
_OTHER_FILLS = (461, 660)
"""Conditional formats and tables, which may color the ground of the text."""
_NO_FILL, _SOLID_FILL, _TWIPS = 0, 1, 20
_FORMULA_CELLS = {8: 6, 9: 5, 10: 4, 11: 3}
"""Cells with a formula hold its value like the cells without one."""
_ERRORS = {0: "#NULL!", 7: "#DIV/0!", 15: "#VALUE!", 23: "#REF!", 29: "#NAME?", 36: "#NUM!",
           42: "#N/A"}  # fmt: skip
_SCRIPTS = {1: "superscript", 2: "subscript"}
_MAX_ROWS, _MAX_COLUMNS = 1_048_576, 16_384


class _Font(NamedTuple):
    marks: tuple[str, ...] = ()
    color: Color | None = None
    points: float = 0.0


def read_sheets(archive: zipfile.ZipFile) -> Iterator[StoredSheet]:
    """Yield the worksheets. Raises ValueError for records that end early."""
    relations = read_relations(archive, WORKBOOK)
    parts = dict(relations.values())
    workbook = Workbook(archive)
    fonts: list[_Font] = []
    if parts.get("styles") in archive.namelist():
        theme = parts.get("theme", "")
        colors = read_theme(read_xml(archive, theme) if theme in archive.namelist() else None)
        workbook.styles, fonts = _read_styles(archive.read(parts["styles"]), colors)
    if parts.get("sharedStrings") in archive.namelist():
        workbook.strings = [
            _read_string(data, fonts)
            for number, data in _iter_records(archive.read(parts["sharedStrings"]))
            if number == _STRING_ITEM
        ]
    for number, data in _iter_records(archive.read(WORKBOOK)):
        if number == _PROPERTIES:
            workbook.is_1904 = bool(_unpack("<I", data, 0)[0] & 1)
        if number != _SHEET:
            continue
        relation, offset = _read_text(data, 8)
        name = _read_text(data, offset)[0]
        kind, part = relations.get(relation, ("", ""))
        if kind == "worksheet":
            is_hidden = bool(_unpack("<I", data, 0)[0])
            yield StoredSheet(name, is_hidden, partial(_read_sheet, workbook, name, part))


def _read_sheet(workbook: Workbook, name: str, part: str) -> Sheet:
    sheet, row, has_other_fills = Sheet(name), 0, False
    for number, data in _iter_records(workbook.archive.read(part)):
        if number == _ROW:
            row = _unpack("<I", data, 0)[0]
            if row >= _MAX_ROWS:
                raise ValueError(f"row {row} lies outside of the sheet")
            if _unpack("<B", data, 11)[0] & 0x10:
                sheet.hidden_rows.add(row)
        elif number == _COLUMNS:
            first, last = _unpack("<II", data, 0)
            if _unpack("<H", data, 16)[0] & 1:
                sheet.hidden_columns |= set(range(first, min(last + 1, _MAX_COLUMNS)))
        elif number == _MERGED:
            top, bottom, left, right = _unpack("<IIII", data, 0)
            sheet.merged.append((top, left, bottom, right))
        elif 2 <= number <= 11:
            column, flags = _unpack("<II", data, 0)
            if column >= _MAX_COLUMNS:
                raise ValueError(f"column {column} lies outside of the sheet")
            kind, value = _read_value(_FORMULA_CELLS.get(number, number), data)
            index = flags & 0xFFFFFF
            style = workbook.styles[index] if index < len(workbook.styles) else CellStyle()
            workbook.add_cell(sheet, row, column, kind, value, style)
        elif number in _OTHER_FILLS:
            has_other_fills = True
    if not has_other_fills:
        sheet.hidden_cells |= sheet.unseen_cells
    return sheet


def _read_value(number: int, data: bytes) -> tuple[str, str]:
    """Return type and value of a cell as XLSX writes them."""
    match number:
        case 2:  # a number in 30 bits, of an integer or of the upper half of a float
            rk = _unpack("<I", data, 8)[0]
            value = (
                float(_unpack("<i", data, 8)[0] >> 2)
                if rk & 2
                else struct.unpack("<d", struct.pack("<II", 0, rk & 0xFFFFFFFC))[0]
            )
            return "n", repr(value / 100 if rk & 1 else value)
        case 3:
            return "e", _ERRORS.get(_unpack("<B", data, 8)[0], "#ERROR!")
        case 4:
            return "b", str(_unpack("<B", data, 8)[0])
        case 5:
            return "n", repr(_unpack("<d", data, 8)[0])
        case 6:
            return "str", _read_text(data, 8)[0]
    return "s", str(_unpack("<I", data, 8)[0])


def _read_string(data: bytes, fonts: list[_Font]) -> str:
    """Read a shared string, whose runs may be struck, raised or lowered."""
    text, offset = _read_text(data, 1)
    if not _unpack("<B", data, 0)[0] & 1:
        return text
    runs = []
    for i in range(_unpack("<I", data, offset)[0]):
        start, font = _unpack("<HH", data, offset + 4 + 4 * i)
        runs.append((start, fonts[font].marks if font < len(fonts) else ()))
    return apply_run_marks(text, runs)


def _read_styles(part: bytes, theme: list[Color | None]) -> tuple[list[CellStyle], list[_Font]]:
    codes, is_cell_style = dict(BUILT_IN_FORMATS), False
    fonts: list[_Font] = []
    grounds: list[Color | None] = []
    styles: list[CellStyle] = []
    for number, data in _iter_records(part):
        if number == _FORMAT:
            codes[_unpack("<H", data, 0)[0]] = _read_text(data, 2)[0]
        elif number == _FONT:
            height, flags, _, script = _unpack("<HHHH", data, 0)
            marks = ("struck" if flags & 8 else "", _SCRIPTS.get(script, ""))
            fonts.append(_Font(marks, _read_color(data, 12, theme), height / _TWIPS))
        elif number == _FILL:
            pattern = _unpack("<I", data, 0)[0]
            solid = _read_color(data, 4, theme) if pattern == _SOLID_FILL else None
            grounds.append(WHITE if pattern == _NO_FILL else solid)
        elif number in (_STYLES_START, _STYLES_END):
            is_cell_style = number == _STYLES_START
        elif number == _STYLE and is_cell_style:
            number_format, font, fill = _unpack("<HHH", data, 2)
            code = codes.get(number_format, "")
            own = fonts[font] if font < len(fonts) else _Font()
            ground = grounds[fill] if fill < len(grounds) else WHITE
            is_hidden = is_unseen(own.color, ground, own.points)
            styles.append(
                CellStyle("" if code == "General" else code, "struck" in own.marks, is_hidden)
            )
    return styles, fonts


def _read_color(data: bytes, offset: int, theme: list[Color | None]) -> Color | None:
    """Return a color by its index, value or place in the theme; None for a tinted one."""
    kind, index, tint, *channels = _unpack("<BBhBBB", data, offset)
    if tint:
        return None
    match kind >> 1:
        case 1:
            return INDEXED_COLORS.get(index)
        case 2:
            red, green, blue = channels
            return red, green, blue
        case 3:
            return dict(enumerate(theme)).get(index)
    return None


def _iter_records(part: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(part):
        number, offset = _read_number(part, offset, 2)
        size, offset = _read_number(part, offset, 4)
        if offset + size > len(part):
            raise ValueError("a record ends after its part")
        yield number, part[offset : offset + size]
        offset += size


def _read_number(part: bytes, offset: int, max_bytes: int) -> tuple[int, int]:
    """Read a number of 7 bits per byte and return it with the offset of its end."""
    number = 0
    for i in range(max_bytes):
        byte = part[offset + i]
        number |= (byte & 0x7F) << (7 * i)
        if not byte & 0x80:
            return number, offset + i + 1
    return number, offset + max_bytes


def _read_text(data: bytes, offset: int) -> tuple[str, int]:
    count = _unpack("<I", data, offset)[0]
    if count == 0xFFFFFFFF:  # no text
        return "", offset + 4
    end = offset + 4 + 2 * count
    if end > len(data):
        raise ValueError("a text ends after its record")
    return data[offset + 4 : end].decode("utf-16-le", "replace"), end


def _unpack(layout: str, data: bytes, offset: int) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(layout, data, offset)
    except struct.error as error:
        raise ValueError(f"a record is too short: {error}") from error
