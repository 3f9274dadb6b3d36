"""Reader of workbooks (XLSX, XLSB, XLS, ODS) and of CSV.

Each sheet becomes a summary and its tables with their cell ranges.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from engines.parse import ods, text, xls, xlsb, xlsx
from engines.parse.header_rows import merge_header_rows
from engines.parse.notices import is_hidden_text_kept, list_notices
from engines.parse.opendocument import CONTENT
from engines.parse.sheets import (
    Grid,
    Rows,
    Sheet,
    StoredSheet,
    build_grid,
    check_cell_count,
    iter_notices,
)
from engines.parse.xml_parts import refuse_damaged_parts
from engines.parsed_blocks import ParsedBlock, ParsedPart, format_table

_MAX_CAPTION_ROWS = 5
"""More consecutive rows of a single cell are a table with one column."""


def read_workbook(path: Path) -> ParsedPart:
    """Read every worksheet that is not hidden.

    Raises UnreadableDocument (ENCRYPTED_DOCUMENT, CORRUPT_DOCUMENT), LimitExceeded
    (TOO_MANY_CELLS).
    """
    parsed_part = ParsedPart()
    hidden: list[str] = []
    embedded: list[str] = []
    with refuse_damaged_parts("workbook"):
        for stored in _iter_sheets(path, embedded):
            if stored.is_hidden:
                hidden.append(f"sheet {stored.name}")
                if not is_hidden_text_kept():
                    continue
            sheet = stored.read()
            parsed_part.blocks += _build_sheet_blocks(sheet)
            parsed_part.notices += iter_notices(sheet)
    parsed_part.notices += list_notices(hidden, embedded)
    return parsed_part


def _iter_sheets(path: Path, embedded: list[str]) -> Iterator[StoredSheet]:
    """Yield the worksheets in order; the names of embedded files are added to `embedded`."""
    if not zipfile.is_zipfile(path):
        yield from xls.read_sheets(path, embedded)
        return
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        if CONTENT in names:
            yield from ods.read_sheets(archive, embedded)
        elif xlsb.WORKBOOK in names:
            yield from xlsb.read_sheets(archive)
        else:
            yield from xlsx.read_sheets(archive, embedded)


def read_csv(data: bytes) -> ParsedPart:
    decoded = text.decode_text(data)
    csv.field_size_limit(2**31 - 1)  # the default of 128 KiB fails on long cells
    sample = decoded.text[:65536]
    delimiter = max(",;\t|", key=lambda delimiter: _score_delimiter(sample, delimiter))
    rows = list(csv.reader(io.StringIO(decoded.text), delimiter=delimiter, strict=False))
    width = max(map(len, rows), default=0)
    check_cell_count(len(rows) * width)
    grid = Grid([row + [""] * (width - len(row)) for row in rows], range(len(rows)), range(width))
    return ParsedPart(list(_build_blocks(grid, None)), notices=list(decoded.notices))


def _score_delimiter(sample: str, delimiter: str) -> float:
    widths = Counter(
        len(row) for row in list(csv.reader(io.StringIO(sample), delimiter=delimiter))[:200] if row
    )
    width, rows = widths.most_common(1)[0] if widths else (1, 0)
    return rows / max(1, sum(widths.values())) * min(width, 20) if width > 1 else 0.0


def _build_sheet_blocks(sheet: Sheet) -> Iterator[ParsedBlock]:
    yield ParsedBlock("heading", sheet.name, level=1, sheet=sheet.name)
    grid = build_grid(sheet)
    yield from _build_blocks(grid, sheet.name)
    for remark in sheet.remarks:
        yield ParsedBlock("paragraph", remark, sheet=sheet.name)


def _build_blocks(grid: Grid, sheet: str | None) -> Iterator[ParsedBlock]:
    blocks = [
        block
        for area in _split_areas(grid.rows, 0, 0, 2)
        for block in _build_area_blocks(*area, grid, sheet)
    ]
    if blocks:
        yield _build_summary(grid, blocks, sheet)
    yield from blocks


def _build_summary(grid: Grid, blocks: list[ParsedBlock], sheet: str | None) -> ParsedBlock:
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
    rows = grid.rows
    filled = sum(any(cell.strip() for cell in row) for row in rows) - bool(names)
    words = f"Sheet {sheet}: " if sheet else ""
    words += f"{_format_count(filled, 'row')}, {_format_count(len(rows[0]), 'column')}."
    if names:
        words += f" Columns: {', '.join(names)[:1500]}."
    # `--` would end the comment.
    comment = f"<!-- {words.replace('--', '- -')} -->"
    return ParsedBlock(
        "summary", comment, sheet=sheet, cells=grid.format_range(0, 0, len(rows), len(rows[0]))
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


def _build_area_blocks(
    rows: Rows, top: int, left: int, grid: Grid, sheet: str | None
) -> Iterator[ParsedBlock]:
    """Yield the rows of a single cell above a table as captions, then the table."""
    first = next(
        (i for i, row in enumerate(rows) if sum(bool(cell.strip()) for cell in row) > 1), None
    )
    caption_count = len(rows) if first is None else first
    if caption_count == len(rows) > _MAX_CAPTION_ROWS:
        caption_count = 0
    for i, row in enumerate(rows[:caption_count]):
        words = " ".join(" ".join(row).split())
        cells = grid.format_range(top + i, left, 1, len(row))
        yield ParsedBlock("paragraph", words, sheet=sheet, cells=cells)
    body = rows[caption_count:]
    if body:
        cells = grid.format_range(top + caption_count, left, len(body), len(rows[0]))
        text, end, raw_cells = format_table(*merge_header_rows(body))
        yield ParsedBlock(
            "table", text, header_end=end, sheet=sheet, cells=cells, raw_cells=raw_cells or None
        )
