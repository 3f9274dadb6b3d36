"""Header rows of a spreadsheet's table: their number, and their names joined by column."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engines.parsed_blocks import has_header, is_value, is_year_label

Rows = list[list[str]]
_MAX_HEADER_ROWS = 6
_MAX_PAIRS = 60
_HAS_DIGIT = re.compile(r"\d")


def merge_header_rows(rows: Rows) -> tuple[Rows, int]:
    """Join header rows to one, "2025 Q2", and return the rows with the number of header rows."""
    if _is_label_value_list(rows):
        return rows, 0
    if not has_header(rows, by_convention=True):
        depth = _count_group_rows(rows)
        if not depth or not has_header(rows[depth:], by_convention=True):
            return rows, 0
    depth = _count_group_rows(rows) + 1
    if depth == 1:
        return rows, 1
    groups = [_fill_to_the_right(row, rows[depth - 1]) for row in rows[: depth - 1]]
    header = [
        " ".join(dict.fromkeys(" ".join(name.split()) for name in names if name.strip()))
        for names in zip(*groups, rows[depth - 1], strict=True)
    ]
    return [header, *rows[depth:]], 1


def _count_group_rows(rows: Rows) -> int:
    """Return the number of rows above the last header row, whose names cover several columns.

    A covering name is repeated by a merged cell, or leaves the cells to its right empty.
    """
    depth = 0
    while depth < min(_MAX_HEADER_ROWS, len(rows) - 2):
        row, below = rows[depth], rows[depth + 1]
        covered = _find_covered_columns(row, below)
        if not covered or any(is_value(below[i]) and not is_year_label(below[i]) for i in covered):
            break
        # Under the names of the next row, at least one column holds values or other names.
        if all(below[i].strip() == rows[depth + 2][i].strip() for i in covered):
            break
        depth += 1
    return depth


def _find_covered_columns(row: Sequence[str], below: Sequence[str]) -> list[int]:
    """Return the columns that a name of the row shares with others, each with a name below."""
    covered = set()
    for i in range(1, len(row)):
        is_repeated = row[i].strip() == row[i - 1].strip() != ""
        is_left_empty = not row[i].strip() and bool(row[i - 1].strip() or i - 1 in covered)
        names = below[i - 1].strip(), below[i].strip()
        if (is_repeated or is_left_empty) and all(names) and names[0] != names[1]:
            covered |= {i - 1, i}
    return sorted(covered)


def _fill_to_the_right(row: Sequence[str], below: Sequence[str]) -> list[str]:
    filled = list(row)
    for i in range(1, len(filled)):
        if not filled[i].strip() and below[i].strip() and below[i - 1].strip():
            filled[i] = filled[i - 1]
    return filled


def _is_label_value_list(rows: Rows) -> bool:
    """Return whether two columns hold pairs such as "Invoice number: INV-2291", without names."""
    filled = [row for row in rows if any(cell.strip() for cell in row)]
    if len(rows[0]) != 2 or not 2 <= len(filled) <= _MAX_PAIRS:
        return False
    labels, values = [row[0].strip() for row in filled], [row[1].strip() for row in filled]
    if any(is_value(label) or not label for label in labels) or len(set(labels)) < len(labels):
        return False
    if sum(label.endswith(":") for label in labels) > len(labels) / 2:
        return True
    # A column name rarely has a digit, other than of a year, and columns hold values of one kind.
    return (
        bool(_HAS_DIGIT.search(values[0]))
        and not is_year_label(values[0])
        and len({bool(is_value(value)) for value in values}) > 1
    )
