"""A worksheet as read from any format: cells as shown, merged ranges, hidden rows and columns."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engines.parse.notices import is_hidden_text_kept, join_names, make_hidden_notice, spend
from schemas.errors import LimitExceeded
from schemas.values import Notice

MAX_CELLS = 5_000_000
Address = tuple[int, int]
"""Row and column, from 0."""
Range = tuple[int, int, int, int]
"""Top row, left column, bottom row and right column, from 0 and inclusive."""
Rows = list[list[str]]
_ADDRESS = re.compile(r"\$?([A-Z]{1,3})\$?([0-9]{1,7})")


@dataclass(slots=True)
class Sheet:
    name: str
    cells: dict[Address, str] = field(default_factory=dict)
    """Text of the cells as shown; empty cells are left out."""
    merged: list[Range] = field(default_factory=list)
    hidden_rows: set[int] = field(default_factory=set)
    hidden_columns: set[int] = field(default_factory=set)
    hidden_cells: set[Address] = field(default_factory=set)
    unseen_cells: set[Address] = field(default_factory=set)
    """Cells whose text has no contrast to the ground of their style."""
    unsaved_formulas: list[Address] = field(default_factory=list)
    """Cells with a formula whose value the file does not hold."""
    remarks: list[str] = field(default_factory=list)
    """Comments and text boxes."""

    def add(self, row: int, column: int, text: str, stored: str = "") -> None:
        """Add a cell; a stored value that its format does not show is hidden, other than zero."""
        if not text.strip() and stored.strip().strip("-0."):
            self.hidden_cells.add((row, column))
            text = stored
        if text.strip():
            spend(len(text))
            self.cells[row, column] = text
            check_cell_count(len(self.cells))


@dataclass(frozen=True, slots=True)
class StoredSheet:
    """A worksheet, in order, which is read only if it is visible or wanted."""

    name: str
    is_hidden: bool
    read: Callable[[], Sheet]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of equal length with their row and column numbers in the sheet.

    A run of empty rows or columns is shortened to one, so that a far cell takes no memory.
    """

    rows: Rows
    row_numbers: Sequence[int]
    column_numbers: Sequence[int]

    def format_range(self, top: int, left: int, height: int, width: int) -> str:
        """Name the sheet's cells that a part of the grid covers."""
        bottom, right = top + height - 1, left + width - 1
        first = format_address(self.row_numbers[top], self.column_numbers[left])
        last = format_address(self.row_numbers[bottom], self.column_numbers[right])
        return first if first == last else f"{first}:{last}"


def check_cell_count(cells: int) -> None:
    if cells > MAX_CELLS:
        raise LimitExceeded(
            f"The sheet has {cells:,} cells; {MAX_CELLS:,} are allowed.",
            code="TOO_MANY_CELLS",
            remedy="Split the sheet into smaller files.",
        )


def build_grid(sheet: Sheet) -> Grid:
    """Fill merged cells, leave out hidden ones and shorten empty stretches."""
    hidden_rows, hidden_columns = sheet.hidden_rows, sheet.hidden_columns
    hidden_cells = sheet.hidden_cells
    if is_hidden_text_kept():
        hidden_rows, hidden_columns, hidden_cells = set(), set(), set()
    cells = _fill_merged(sheet)
    cells = {
        (row, column): text
        for (row, column), text in cells.items()
        if row not in hidden_rows
        and column not in hidden_columns
        and (row, column) not in hidden_cells
    }
    row_numbers = _list_numbers({row for row, _ in cells}, hidden_rows)
    column_numbers = _list_numbers({column for _, column in cells}, hidden_columns)
    check_cell_count(len(row_numbers) * len(column_numbers))
    rows = [[cells.get((row, column), "") for column in column_numbers] for row in row_numbers]
    return Grid(rows, row_numbers, column_numbers)


def _fill_merged(sheet: Sheet) -> Mapping[Address, str]:
    """Repeat the text of merged cells, except of one that stands alone in its rows: a title."""
    if not sheet.merged:
        return sheet.cells
    cells = dict(sheet.cells)
    rows = sorted({row for row, _ in cells})
    columns = sorted({column for _, column in cells})
    counts: dict[int, int] = {}
    for row, _ in sheet.cells:
        counts[row] = counts.get(row, 0) + 1
    for top, left, bottom, right in sheet.merged:
        text = sheet.cells.get((top, left))
        if text is None:
            continue
        covered_rows = _slice(rows, top, bottom)
        covered_columns = _slice(columns, left, right)
        if all(counts[row] == (row == top) for row in covered_rows):
            # The first visible cell, as the others show the title too.
            visible = [column for column in covered_columns if column not in sheet.hidden_columns]
            covered_rows, covered_columns = [top], visible[:1]
        spend(len(text) * len(covered_rows) * len(covered_columns))
        for row in covered_rows:
            for column in covered_columns:
                cells.setdefault((row, column), text)
        check_cell_count(len(cells))
    return cells


def _slice(numbers: list[int], first: int, last: int) -> list[int]:
    return numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]


def _list_numbers(used: Iterable[int], hidden: set[int]) -> list[int]:
    """Return the used numbers in order, with one unused number in each visible gap."""
    numbers: list[int] = []
    for number in sorted(used):
        if numbers:
            gap = next((i for i in range(numbers[-1] + 1, number) if i not in hidden), None)
            if gap is not None:
                numbers.append(gap)
        numbers.append(number)
    return numbers


def iter_notices(sheet: Sheet) -> Iterator[Notice]:
    rows = sorted({row for row, _ in sheet.cells} & sheet.hidden_rows)
    columns = sorted({column for _, column in sheet.cells} & sheet.hidden_columns)
    hidden = [f"row {row + 1}" for row in rows]
    hidden += [f"column {format_column(column)}" for column in columns]
    hidden += [
        f"cell {format_address(*cell)} (invisible text)" for cell in sorted(sheet.hidden_cells)
    ]
    if hidden:
        notice = make_hidden_notice(hidden)
        yield Notice(code=notice.code, detail=f"sheet {sheet.name}, {notice.detail}")
    if sheet.unsaved_formulas:
        names = join_names(format_address(*cell) for cell in sheet.unsaved_formulas)
        yield Notice(
            code="FORMULA_WITHOUT_VALUE",
            detail=f"sheet {sheet.name}: the file holds a formula but no cached value in {names}; "
            "open and save it in a spreadsheet program",
        )


def parse_address(address: str) -> Address | None:
    match = _ADDRESS.fullmatch(address)
    if not match:
        return None
    column = 0
    for letter in match[1]:
        column = column * 26 + ord(letter) - 64
    return int(match[2]) - 1, column - 1


def parse_range(reference: str) -> Range | None:
    first, _, last = reference.partition(":")
    start, end = parse_address(first), parse_address(last or first)
    return (*start, *end) if start and end else None


def format_address(row: int, column: int) -> str:
    return f"{format_column(column)}{row + 1}"


def format_column(column: int) -> str:
    name = ""
    column += 1
    while column:
        column, remainder = divmod(column - 1, 26)
        name = chr(65 + remainder) + name
    return name
