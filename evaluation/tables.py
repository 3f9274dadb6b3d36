"""Tables of a Markdown text as grids, and whether a cell has the neighbours that a check expects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from evaluation.text_metrics import cell_key

Grid = list[list[str]]

_RULE = re.compile(r"(?=[\s:|-]*?--)[\s:|-]*+$")
_HTML_TABLE = re.compile(r"<table\b(?:(?!<table\b).)*?</table>", re.DOTALL | re.IGNORECASE)
_HTML_ROW = re.compile(r"<tr\b(?:(?!<tr\b).)*?</tr>", re.DOTALL | re.IGNORECASE)
_HTML_CELL = re.compile(r"<(t[dh])\b[^<>]*>((?:(?!<t[dh]\b).)*?)</\1>", re.DOTALL | re.IGNORECASE)


def grids(markdown: str) -> list[Grid]:
    """Pipe tables and HTML tables, rows of cell texts; spanned cells are not repeated."""
    found: list[Grid] = []
    rows: Grid = []
    for line in [*markdown.splitlines(), ""]:
        if line.strip().startswith("|"):
            if not _RULE.match(line):
                rows.append(_cells(line))
        elif rows:
            found.append(rows)
            rows = []
    return [*found, *([[cell for _, cell in _HTML_CELL.findall(row)] for row in _HTML_ROW.findall(table)] for table in _HTML_TABLE.findall(markdown))]


def _cells(row: str) -> list[str]:
    parts = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [part.replace("\\|", "|").strip() for part in parts]


def cell_texts(markdown: str) -> list[str]:
    return [cell for grid in grids(markdown) for row in grid for cell in row]


Neighbours = Callable[[Grid, int, int], Iterator[str]]


def _at(rows: int, columns: int) -> Neighbours:
    def one(grid: Grid, row: int, column: int) -> Iterator[str]:
        row, column = row + rows, column + columns
        if 0 <= row < len(grid) and 0 <= column < len(grid[row]):
            yield grid[row][column]

    return one


def _above(grid: Grid, row: int, column: int) -> Iterator[str]:
    return (grid[other][column] for other in range(row) if column < len(grid[other]))


def _left(grid: Grid, row: int, column: int) -> Iterator[str]:
    return iter(grid[row][:column])


NEIGHBOURS: Mapping[str, Neighbours] = {
    "up": _at(-1, 0),
    "down": _at(1, 0),
    "left": _at(0, -1),
    "right": _at(0, 1),
    "top_heading": _above,
    "left_heading": _left,
}


def has_cell(markdown: str, check: Mapping[str, object]) -> bool:
    """Whether some table has the check's cell with every neighbour that it names."""
    wanted = cell_key(str(check["cell"]))
    expected = {side: cell_key(str(check[side])) for side in NEIGHBOURS if check.get(side)}
    return any(
        cell_key(cell) == wanted and all(_has(NEIGHBOURS[side](grid, row, column), key) for side, key in expected.items())
        for grid in grids(markdown)
        for row, cells in enumerate(grid)
        for column, cell in enumerate(cells)
    )


def _has(texts: Iterator[str], key: str) -> bool:
    return any(cell_key(text) == key for text in texts)
