"""Reader of ODS worksheets, which hold the text of each cell as shown.

Source: OpenDocument 1.3, part 3, 9 (tables).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from functools import partial

from engines.parse.notices import WHITE
from engines.parse.number_formats import keep_raw_value
from engines.parse.opendocument import (
    CONTENT,
    HiddenText,
    Marks,
    format_body,
    format_paragraph,
    list_embedded,
    read_marks,
)
from engines.parse.scripts import format_struck
from engines.parse.sheets import Sheet, StoredSheet, format_address
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_attribute,
    iter_children,
    iter_named,
    read_xml,
    strip_namespace,
)

_MAX_ROWS, _MAX_COLUMNS = 1_048_576, 16_384
_GROUPS = ("table-row-group", "table-header-rows", "table-rows")
_VALUES = {"float": "value", "percentage": "value", "currency": "value", "date": "date-value"}
"""Attribute with the stored value of a cell, by its type."""
_RAW_VALUE = re.compile(
    r"-?\d{1,40}(?:\.\d{1,40})?(?:[Ee][+-]?\d{1,3})?"
    r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d{1,9})?)?"
)
_COLUMN_GROUPS = ("table-column-group", "table-header-columns", "table-columns")


def read_sheets(archive: zipfile.ZipFile, embedded: list[str]) -> Iterator[StoredSheet]:
    root = read_xml(archive, CONTENT)
    marks = read_marks(archive)
    hidden_styles = {
        get_attribute(style, "name")
        for style in iter_named(root, "style")
        if (properties := find_named(style, "table-properties")) is not None
        and get_attribute(properties, "display") == "false"
    }
    for table in iter_children(find_named(root, "body", "spreadsheet"), "table"):
        name, style = get_attribute(table, "name"), get_attribute(table, "style-name")
        yield StoredSheet(name, style in hidden_styles, partial(_read_sheet, table, name, marks))
    embedded += list_embedded(archive)


def _read_sheet(table: Element, name: str, marks: Marks) -> Sheet:
    sheet = Sheet(name)
    column = 0
    for element in _iter_elements(table, "table-column", _COLUMN_GROUPS):
        count = min(_get_count(element, "number-columns-repeated"), _MAX_COLUMNS - column)
        if get_attribute(element, "visibility", "visible") != "visible":
            sheet.hidden_columns |= set(range(column, column + count))
        column += count
    row = 0
    for element in _iter_elements(table, "table-row", _GROUPS):
        count = min(_get_count(element, "number-rows-repeated"), _MAX_ROWS - row)
        cells, unseen = _read_row(element, row, sheet, marks)
        is_hidden = get_attribute(element, "visibility", "visible") != "visible"
        # Empty rows are repeated to the end of the sheet.
        for i in range(row, row + count if cells or unseen else row):
            if is_hidden:
                sheet.hidden_rows.add(i)
            for column, text, stored in cells:
                sheet.add(i, column, text, stored)
            sheet.hidden_cells |= {(i, column) for column in unseen}
        if is_hidden and not cells and count < _MAX_ROWS // 2:
            sheet.hidden_rows |= set(range(row, row + count))
        row += count
    for shapes in iter_children(table, "shapes"):
        boxes = (format_body(box, marks) for box in iter_named(shapes, "text-box"))
        sheet.remarks += filter(None, boxes)
    return sheet


def _read_row(
    element: Element, row: int, sheet: Sheet, marks: Marks
) -> tuple[list[tuple[int, str, str]], set[int]]:
    """Return the texts and stored values by column, and the columns with text that a reader cannot
    see.
    """
    found: list[tuple[int, str, str]] = []
    unseen: set[int] = set()
    column = 0
    for cell in iter_children(element, "table-cell", "covered-table-cell"):
        kind = strip_namespace(cell.tag)
        count = min(_get_count(cell, "number-columns-repeated"), _MAX_COLUMNS - column)
        style = marks.get(get_attribute(cell, "style-name"), {})
        value_type = get_attribute(cell, "value-type")
        hidden = HiddenText(style.get("ground", WHITE))
        text = " ".join(
            format_paragraph(paragraph, marks, None, hidden, style)
            for paragraph in iter_children(cell, "p")
        )
        columns = range(column, column + count)
        raw_value = _read_raw_value(cell, value_type)
        stored = raw_value or get_attribute(cell, "string-value")
        if (text.strip() or stored) and kind == "table-cell":
            if text.strip():
                is_struck = style.get("struck")
                text = format_struck(text) if is_struck else keep_raw_value(text, raw_value)
            found += [(i, text, stored) for i in columns]
        if hidden.texts:
            unseen.update(columns)
        elif get_attribute(cell, "formula") and not value_type:
            sheet.unsaved_formulas.append((row, column))
        height = _get_count(cell, "number-rows-spanned")
        width = _get_count(cell, "number-columns-spanned")
        if height > 1 or width > 1:
            sheet.merged.append((row, column, row + height - 1, column + width - 1))
        for note in iter_children(cell, "annotation"):
            if words := format_body(note, marks):
                sheet.remarks.append(f"{format_address(row, column)}: {words}")
        column += count
    return found, unseen


def _read_raw_value(cell: Element, value_type: str) -> str:
    """Return the stored number or date; '' for other types, such as a time, which is shown as it is
    stored.
    """
    value = get_attribute(cell, _VALUES.get(value_type, ""))
    return value if _RAW_VALUE.fullmatch(value) else ""


def _iter_elements(table: Element, name: str, groups: tuple[str, ...]) -> Iterator[Element]:
    for child in table:
        kind = strip_namespace(child.tag)
        if kind == name:
            yield child
        elif kind in groups:
            yield from _iter_elements(child, name, groups)


def _get_count(element: Element, name: str) -> int:
    return max(1, int(get_attribute(element, name, "1")))
