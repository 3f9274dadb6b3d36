"""Reader of XLSX, XLS and ODS by calamine and of CSV by the standard library.

Each sheet becomes a summary and its tables with their cell ranges.
"""

from __future__ import annotations

import csv
import datetime
import io
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from python_calamine import CalamineError, PasswordError, SheetTypeEnum, load_workbook

from engines.parse import text
from engines.parse.number_formats import CellFormats, format_number, read_formats
from engines.parse.refusals import make_corrupt_error, make_encrypted_error, spend
from engines.parsed_blocks import ParsedBlock, ParsedPart, format_table, has_header
from schemas.errors import LimitExceeded

MAX_CELLS = 5_000_000
_MAX_CAPTION_ROWS = 5
"""More consecutive rows of a single cell are a table with one column."""
Rows = list[list[str]]


def read_workbook(path: Path) -> ParsedPart:
    """Read every worksheet.

    Raises UnreadableDocument (ENCRYPTED_DOCUMENT, CORRUPT_DOCUMENT), LimitExceeded
    (TOO_MANY_CELLS).
    """
    parsed_part = ParsedPart()
    try:
        formats = read_formats(path) if zipfile.is_zipfile(path) else {}
        with load_workbook(str(path)) as workbook:
            for sheet in workbook.sheets_metadata:
                if sheet.typ == SheetTypeEnum.WorkSheet:
                    parsed_part.blocks += _read_sheet(
                        workbook.get_sheet_by_name(sheet.name), formats.get(sheet.name, {})
                    )
    except PasswordError as error:
        raise make_encrypted_error("workbook") from error
    except CalamineError as error:
        raise make_corrupt_error(f"The workbook cannot be read: {error}") from error
    return parsed_part


def read_csv(data: bytes) -> ParsedPart:
    decoded = text.decode_text(data)
    csv.field_size_limit(2**31 - 1)  # the default of 128 KiB fails on long cells
    sample = decoded.text[:65536]
    delimiter = max(",;\t|", key=lambda delimiter: _score_delimiter(sample, delimiter))
    rows = list(csv.reader(io.StringIO(decoded.text), delimiter=delimiter, strict=False))
    _check_cell_count(len(rows) * max(map(len, rows), default=0))
    return ParsedPart(list(_build_blocks(rows, None, 0, 0)), notices=list(decoded.notices))


def _score_delimiter(sample: str, delimiter: str) -> float:
    widths = Counter(
        len(row) for row in list(csv.reader(io.StringIO(sample), delimiter=delimiter))[:200] if row
    )
    width, rows = widths.most_common(1)[0] if widths else (1, 0)
    return rows / max(1, sum(widths.values())) * min(width, 20) if width > 1 else 0.0


def _check_cell_count(cells: int) -> None:
    if cells > MAX_CELLS:
        raise LimitExceeded(
            f"The sheet has {cells:,} cells; {MAX_CELLS:,} are allowed.",
            code="TOO_MANY_CELLS",
            remedy="Split the sheet into smaller files.",
        )


def _read_sheet(sheet: Any, formats: CellFormats) -> Iterator[ParsedBlock]:
    yield ParsedBlock("heading", sheet.name, level=1, sheet=sheet.name)
    if sheet.start is not None:
        _check_cell_count(sheet.height * sheet.width)
        top, left = sheet.start
        rows: Rows = []
        # calamine yields rows from the top of the sheet, but columns from the first used one.
        for i, row in enumerate(islice(sheet.iter_rows(), top, None), top):
            rows.append(
                [_format_value(value, formats.get((i, j))) for j, value in enumerate(row, left)]
            )
            spend(sum(map(len, rows[-1])))
        yield from _build_blocks(rows, sheet.name, top, left)


def _format_value(value: Any, code: str | None) -> str:
    if (
        code
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and (formatted := format_number(float(value), code)) is not None
    ):
        return formatted
    match value:
        # Before the numbers: bool is a subclass of int.
        case bool():
            return "TRUE" if value else "FALSE"
        # Spreadsheets store integers as floats, which hold 15 digits exactly.
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case float():
            return f"{value:.12g}"
        case datetime.datetime():
            return (
                value.date().isoformat()
                if value.time() == datetime.time()
                else value.isoformat(sep=" ", timespec="seconds")
            )
        case datetime.date() | datetime.time():
            return value.isoformat()
    return str(value)


def _build_blocks(rows: Rows, sheet: str | None, top: int, left: int) -> Iterator[ParsedBlock]:
    width = max((len(row) for row in rows), default=0)
    rows = [row + [""] * (width - len(row)) for row in rows]
    blocks = [
        block
        for area in _split_areas(rows, top, left, 2)
        for block in _build_area_blocks(*area, sheet)
    ]
    if blocks:
        yield _build_summary(rows, blocks, sheet, top, left)
    yield from blocks


def _build_summary(
    rows: Rows, blocks: list[ParsedBlock], sheet: str | None, top: int, left: int
) -> ParsedBlock:
    """Describe the sheet for search by its size and the column names of its largest table.

    The summary is an HTML comment, so that no answer quotes words that are not the document's.
    """
    tables = [block for block in blocks if block.kind == "table"]
    largest = max(tables, key=lambda block: len(block.text), default=None)
    names = (
        [
            cell.strip()
            for cell in largest.text.split("\n", 1)[0].strip("| ").split(" | ")
            if cell.strip()
        ]
        if largest
        else []
    )
    filled = sum(any(cell.strip() for cell in row) for row in rows) - bool(names)
    words = f"Sheet {sheet}: " if sheet else ""
    words += f"{_format_count(filled, 'row')}, {_format_count(len(rows[0]), 'column')}."
    if names:
        words += f" Columns: {', '.join(names)[:1500]}."
    # `--` would end the comment.
    comment = f"<!-- {words.replace('--', '- -')} -->"
    return ParsedBlock(
        "summary",
        comment,
        sheet=sheet,
        cells=_format_cell_range(top, left, top + len(rows) - 1, left + len(rows[0]) - 1),
    )


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _split_areas(rows: Rows, top: int, left: int, depth: int) -> Iterator[tuple[Rows, int, int]]:
    """Yield areas between blank rows and columns, each with its top row and left column."""
    for start, end in _find_filled_ranges([any(cell.strip() for cell in row) for row in rows]):
        band = rows[start:end]
        column_ranges = list(
            _find_filled_ranges([any(row[j].strip() for row in band) for j in range(len(band[0]))])
        )
        # A single column is no table of its own.
        if not all(last - first > 1 for first, last in column_ranges):
            column_ranges = [(column_ranges[0][0], column_ranges[-1][1])]
        for first, last in column_ranges:
            area = [row[first:last] for row in band]
            if depth and len(column_ranges) > 1:
                yield from _split_areas(area, top + start, left + first, depth - 1)
            else:
                yield area, top + start, left + first


def _find_filled_ranges(is_used: list[bool]) -> Iterator[tuple[int, int]]:
    start = None
    for i, filled in enumerate([*is_used, False]):
        if filled and start is None:
            start = i
        elif not filled and start is not None:
            yield start, i
            start = None


def _build_area_blocks(rows: Rows, top: int, left: int, sheet: str | None) -> Iterator[ParsedBlock]:
    """Yield the rows of a single cell above a table as captions, then the table."""
    first = next(
        (i for i, row in enumerate(rows) if sum(bool(cell.strip()) for cell in row) > 1), None
    )
    caption_count = len(rows) if first is None else first
    if caption_count == len(rows) > _MAX_CAPTION_ROWS:
        caption_count = 0
    for i, row in enumerate(rows[:caption_count]):
        words = " ".join(" ".join(row).split())
        yield ParsedBlock(
            "paragraph",
            words,
            sheet=sheet,
            cells=_format_cell_range(top + i, left, top + i, left + len(row) - 1),
        )
    if rows[caption_count:]:
        body, end = format_table(
            rows[caption_count:], int(has_header(rows[caption_count:], by_convention=True))
        )
        yield ParsedBlock(
            "table",
            body,
            header_end=end,
            sheet=sheet,
            cells=_format_cell_range(
                top + caption_count, left, top + len(rows) - 1, left + len(rows[0]) - 1
            ),
        )


def _format_cell_range(top: int, left: int, bottom: int, right: int) -> str:
    first, last = f"{_format_column(left)}{top + 1}", f"{_format_column(right)}{bottom + 1}"
    return first if first == last else f"{first}:{last}"


def _format_column(column: int) -> str:
    name = ""
    column += 1
    while column:
        column, remainder = divmod(column - 1, 26)
        name = chr(65 + remainder) + name
    return name
