"""Tables: stretches of rows with several runs each, whose runs stand under one another."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engines.layout.runs import Row, Run

_WIDEST_GAP = 3.0
_LONGEST_CELL = 90
_FITTING = 0.8
_SPLIT_GAP = 0.4


@dataclass(frozen=True, slots=True)
class Table:
    """Rows `[start, end)` of a region, as cells."""

    start: int
    end: int
    cells: list[list[str]]


Column = tuple[float, float]


def tables(rows: Sequence[Row], height: float) -> list[Table]:
    """`height` is the region's usual line height."""
    found: list[Table] = []
    i = 0
    while i < len(rows):
        end = _reach(rows, i, height)
        table = _table(rows, i, end) if end - i >= 2 else None
        if table:
            found.append(table)
        i = table.end if table else max(end, i + 1)
    return found


def _reach(rows: Sequence[Row], start: int, height: float) -> int:
    """Where the stretch that begins at `start` ends: after its last row with several runs; up to two others may stand between."""
    if len(rows[start].runs) < 2:
        return start
    end, lone = start + 1, 0
    for i in range(start + 1, len(rows)):
        if rows[i].y0 - rows[i - 1].y1 > _WIDEST_GAP * height:
            break
        if len(rows[i].runs) >= 2:
            end, lone = i + 1, 0
        else:
            lone += 1
            if lone > 2 or len(rows[i].text) > _LONGEST_CELL:
                break
    return end


def _table(rows: Sequence[Row], start: int, end: int) -> Table | None:
    members = rows[start:end]
    several = [row for row in members if len(row.runs) >= 2]
    columns = _columns(several)
    if len(several) < 2 or len(columns) < 2 or not _fits(several, columns):
        return None
    cells = [_cells(row, columns) for row in members]
    return Table(start, end, _merged(cells, members))


def _columns(several: Sequence[Row]) -> list[Column]:
    """Stretches of x that runs cover, from the rows with the most runs; what crosses two of them (a spanning header) is left out."""
    most = max(len(row.runs) for row in several)
    full = [run for row in several if len(row.runs) >= max(2, 0.6 * most) for run in row.runs]
    full.sort(key=lambda run: run.width)
    columns = _covered(full)
    while len(columns) < 0.75 * most and len(full) > most:
        full = full[: -max(1, len(full) // 12)]
        columns = _covered(full)
    for run in (run for row in several for run in row.runs):
        if not any(run.x0 < right and run.x1 > left for left, right in columns):
            columns = sorted([*columns, (run.x0, run.x1)])
    return columns


def _covered(runs: Sequence[Run]) -> list[Column]:
    columns: list[Column] = []
    for left, right in sorted((run.x0, run.x1) for run in runs):
        if columns and left < columns[-1][1] - 0.5:
            columns[-1] = (columns[-1][0], max(columns[-1][1], right))
        else:
            columns.append((left, right))
    return columns


def _fits(several: Sequence[Row], columns: Sequence[Column]) -> bool:
    """Most runs have a column for themselves, and cells are not whole sentences throughout."""
    alone = total = 0
    for row in several:
        taken = [_touched(run, columns) for run in row.runs]
        flat = [column for touched in taken for column in touched]
        total += len(taken)
        alone += sum(1 for touched in taken if len(touched) == 1 and flat.count(touched[0]) == 1)
    lengths = [len(run.text) for row in several for run in row.runs]
    return alone >= _FITTING * total and statistics.mean(lengths) <= 0.6 * _LONGEST_CELL


def _touched(run: Run, columns: Sequence[Column]) -> list[int]:
    return [i for i, (left, right) in enumerate(columns) if min(run.x1, right) - max(run.x0, left) > 0.1 * min(run.width, right - left)]


def _cells(row: Row, columns: Sequence[Column]) -> list[str]:
    cells = [""] * len(columns)
    for run in row.runs:
        for column, text in _placed(run, columns):
            cells[column] = f"{cells[column]} {text}".strip()
    return cells


def _placed(run: Run, columns: Sequence[Column]) -> list[tuple[int, str]]:
    """A run's text in its column; a run over several columns is divided where a wide space between its words falls between two of them."""
    touched = _touched(run, columns)
    if len(touched) < 2 or len(run.words) < 2:
        return [(touched[0] if touched else _nearest(run, columns), run.text)]
    parts: list[list[int]] = [[0]]
    for i in range(1, len(run.words)):
        before, after = run.words[i - 1], run.words[i]
        apart = after.x0 - before.x1 > _SPLIT_GAP * run.size and any(
            before.x1 <= columns[j + 1][0] + 0.3 * run.size and after.x0 >= columns[j][1] - 0.3 * run.size for j in touched[:-1]
        )
        if apart:
            parts.append([i])
        else:
            parts[-1].append(i)
    found = []
    for part in parts:
        words = [run.words[i] for i in part]
        piece = Run(words, words[0].x0, run.y0, words[-1].x1, run.y1, run.size)
        found.append((next(iter(_touched(piece, columns)), _nearest(piece, columns)), piece.text))
    return found


def _nearest(run: Run, columns: Sequence[Column]) -> int:
    middle = (run.x0 + run.x1) / 2
    return min(range(len(columns)), key=lambda i: abs(middle - sum(columns[i]) / 2))


def _merged(cells: list[list[str]], rows: Sequence[Row]) -> list[list[str]]:
    """Lines of one cell put together: a row without a first cell that stands close under a fuller one continues it."""
    merged = [cells[0]]
    for i in range(1, len(cells)):
        if _continues(merged[-1], cells[i], rows[i - 1], rows[i]):
            merged[-1] = [f"{above} {below}".strip() for above, below in zip(merged[-1], cells[i], strict=True)]
        else:
            merged.append(cells[i])
    return merged


def _continues(above: list[str], below: list[str], upper: Row, lower: Row) -> bool:
    filled = [i for i, cell in enumerate(below) if cell]
    if not filled or below[0] or lower.y0 - upper.y1 > 0.45 * (upper.y1 - upper.y0):
        return False
    fewer = len(filled) < sum(1 for cell in above if cell)
    return fewer and all(above[i] for i in filled) and not any(below[i][:1].isdigit() for i in filled)
