"""Parse the tables of a Markdown text into grids, and find cells by their neighbors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from evaluation.text_metrics import normalize_cell

Grid = list[list[str]]

_DELIMITER_ROW = re.compile(r"(?=[\s:|-]*?--)[\s:|-]*+$")
_HTML_TABLE = re.compile(r"<table\b(?:(?!<table\b).)*?</table>", re.DOTALL | re.IGNORECASE)
_HTML_ROW = re.compile(r"<tr\b(?:(?!<tr\b).)*?</tr>", re.DOTALL | re.IGNORECASE)
_HTML_CELL = re.compile(r"<(t[dh])\b[^<>]*>((?:(?!<t[dh]\b).)*?)</\1>", re.DOTALL | re.IGNORECASE)


def parse_tables(markdown: str) -> list[Grid]:
    """Return pipe tables and HTML tables as rows of cell texts. Spanned cells are not repeated."""
    tables: list[Grid] = []
    rows: Grid = []
    for line in [*markdown.splitlines(), ""]:
        if line.strip().startswith("|"):
            if not _DELIMITER_ROW.match(line):
                rows.append(_split_row(line))
        elif rows:
            tables.append(rows)
            rows = []
    return [
        *tables,
        *(
            [[cell for _, cell in _HTML_CELL.findall(row)] for row in _HTML_ROW.findall(table)]
            for table in _HTML_TABLE.findall(markdown)
        ),
    ]


def _split_row(row: str) -> list[str]:
    parts = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [part.replace("\\|", "|").strip() for part in parts]


def list_cell_texts(markdown: str) -> list[str]:
    return [cell for grid in parse_tables(markdown) for row in grid for cell in row]


FindNeighbors = Callable[[Grid, int, int], Iterator[str]]


def _neighbor_at(rows: int, columns: int) -> FindNeighbors:
    def find(grid: Grid, row: int, column: int) -> Iterator[str]:
        row, column = row + rows, column + columns
        if 0 <= row < len(grid) and 0 <= column < len(grid[row]):
            yield grid[row][column]

    return find


def _cells_above(grid: Grid, row: int, column: int) -> Iterator[str]:
    return (grid[row_above][column] for row_above in range(row) if column < len(grid[row_above]))


def _cells_left_of(grid: Grid, row: int, column: int) -> Iterator[str]:
    return iter(grid[row][:column])


NEIGHBORS: Mapping[str, FindNeighbors] = {
    "up": _neighbor_at(-1, 0),
    "down": _neighbor_at(1, 0),
    "left": _neighbor_at(0, -1),
    "right": _neighbor_at(0, 1),
    "top_heading": _cells_above,
    "left_heading": _cells_left_of,
}


def has_cell(markdown: str, check: Mapping[str, object]) -> bool:
    """Return whether any table has the check's cell with all given neighbors."""
    expected_cell = normalize_cell(str(check["cell"]))
    expected_neighbors = {
        side: normalize_cell(str(check[side])) for side in NEIGHBORS if check.get(side)
    }
    return any(
        normalize_cell(cell) == expected_cell
        and all(
            key in map(normalize_cell, NEIGHBORS[side](grid, row, column))
            for side, key in expected_neighbors.items()
        )
        for grid in parse_tables(markdown)
        for row, cells in enumerate(grid)
        for column, cell in enumerate(cells)
    )
