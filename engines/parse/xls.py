"""Reader of XLS worksheets by xlrd, with formats, merged cells and what is hidden."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import xlrd
from xlrd.biffh import error_text_from_code

from engines.parse.notices import WHITE, is_unseen, make_corrupt_error, make_encrypted_error
from engines.parse.number_formats import format_cell_number, format_text
from engines.parse.scripts import apply_run_marks, format_struck
from engines.parse.sheets import Sheet, StoredSheet

_VISIBLE = 0
_NO_FILL, _SOLID_FILL = 0, 1
_RAISED, _LOWERED = 1, 2
_TWIPS = 20
_EMBEDDED_STORAGE = re.compile(r"MBD[0-9A-F]{8}")
_LIBRARY_ERRORS = (
    xlrd.XLRDError,
    xlrd.compdoc.CompDocError,
    struct.error,
    AssertionError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""Errors of xlrd on damaged files, which it does not check throughout."""


def read_sheets(path: Path, embedded: list[str]) -> Iterator[StoredSheet]:
    data = path.read_bytes()
    try:
        embedded += _list_embedded(data)
        book = xlrd.open_workbook(
            file_contents=data,
            formatting_info=True,
            ragged_rows=True,
            on_demand=True,
            logfile=io.StringIO(),
        )
        sheets = list(enumerate(zip(book.sheet_names(), book._sheet_visibility, strict=False)))
    except _LIBRARY_ERRORS as error:
        if "encrypted" in str(error).lower():
            raise make_encrypted_error("workbook") from error
        raise make_corrupt_error(f"The workbook cannot be read: {str(error)[:200]}") from error
    for index, (name, visibility) in sheets:
        yield StoredSheet(name, visibility != _VISIBLE, partial(_read_sheet, book, index, name))


def _read_sheet(book: xlrd.Book, index: int, name: str) -> Sheet:
    try:
        return _convert_sheet(book, book.sheet_by_index(index))
    except _LIBRARY_ERRORS as error:
        raise make_corrupt_error(f"The sheet {name} cannot be read: {error}") from error
    finally:
        book.unload_sheet(index)


def _convert_sheet(book: xlrd.Book, source: xlrd.sheet.Sheet) -> Sheet:
    sheet = Sheet(source.name)
    sheet.merged = [
        (top, left, bottom - 1, right - 1) for top, bottom, left, right in source.merged_cells
    ]
    sheet.hidden_rows = {row for row, info in source.rowinfo_map.items() if info.hidden}
    sheet.hidden_columns = {column for column, info in source.colinfo_map.items() if info.hidden}
    for row in range(source.nrows):
        for column, cell in enumerate(source.row(row)):
            style = book.xf_list[cell.xf_index] if cell.xf_index is not None else None
            code = book.format_map[style.format_key].format_str if style else ""
            text = _format_value(cell, "" if code == "General" else code, book.datemode == 1)
            if runs := source.rich_text_runlist_map.get((row, column)):
                text = apply_run_marks(text, [(start, _list_marks(book, n)) for start, n in runs])
            if style is not None and text.strip() and _is_unseen(book, style):
                sheet.hidden_cells.add((row, column))
            is_struck = style is not None and book.font_list[style.font_index].struck_out
            stored = "" if cell.ctype == xlrd.XL_CELL_ERROR else str(cell.value)
            sheet.add(row, column, format_struck(text) if is_struck else text, stored)
    return sheet


def _list_marks(book: xlrd.Book, number: int) -> list[str]:
    font = book.font_list[number]
    script = {_RAISED: "superscript", _LOWERED: "subscript"}.get(font.escapement, "")
    return [script, "struck" if font.struck_out else ""]


def _is_unseen(book: xlrd.Book, style: xlrd.formatting.XF) -> bool:
    font, fill = book.font_list[style.font_index], style.background
    ground = None
    if fill.fill_pattern == _NO_FILL:
        ground = WHITE
    elif fill.fill_pattern == _SOLID_FILL:
        ground = book.colour_map.get(fill.pattern_colour_index)
    return is_unseen(book.colour_map.get(font.colour_index), ground, font.height / _TWIPS)


def _list_embedded(data: bytes) -> list[str]:
    """Return the names of the storages that hold files of other programs."""
    if not data.startswith(xlrd.compdoc.SIGNATURE):
        return []
    directory = xlrd.compdoc.CompDoc(data, logfile=io.StringIO()).dirlist
    return [entry.name for entry in directory if _EMBEDDED_STORAGE.fullmatch(entry.name)]


def _format_value(cell: xlrd.sheet.Cell, code: str, is_1904: bool) -> str:
    match cell.ctype:
        case xlrd.XL_CELL_NUMBER | xlrd.XL_CELL_DATE:
            return format_cell_number(cell.value, code, is_1904=is_1904)
        case xlrd.XL_CELL_BOOLEAN:
            return "TRUE" if cell.value else "FALSE"
        case xlrd.XL_CELL_ERROR:
            return str(error_text_from_code.get(cell.value, "#ERROR!"))
    text = str(cell.value)
    return format_text(text, code) if code not in ("", "@") else text
