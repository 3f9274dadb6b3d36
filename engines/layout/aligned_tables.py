"""Tables without ruling lines: consecutive rows whose runs align in columns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engines.layout.text_runs import LayoutRow, TextRun

_MAX_ROW_GAP = 3.0
_MAX_CELL_CHARACTERS = 90
_MIN_FITTING_SHARE = 0.8
_MIN_SPLIT_GAP = 0.4
_MAX_LEVEL_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class AlignedTable:
    """Cells of the rows `[start, end)` of a region, which two tables side by side share."""

    start: int
    end: int
    cells: list[list[str]]


ColumnExtent = tuple[float, float]


def find_aligned_tables(rows: Sequence[LayoutRow], height: float) -> list[AlignedTable]:
    """Find the tables in a region; `height` is its usual line height."""
    found_tables: list[AlignedTable] = []
    i = 0
    while i < len(rows):
        end = _find_stretch_end(rows, i, height)
        tables = _build_tables(rows, i, end) if end - i >= 2 else []
        found_tables += tables
        i = tables[-1].end if tables else max(end, i + 1)
    return found_tables


def _find_stretch_end(rows: Sequence[LayoutRow], start: int, height: float) -> int:
    """Return the end of the stretch of rows with several runs that begins at `start`.

    Up to two consecutive rows with a single run may occur inside it.
    """
    if len(rows[start].runs) < 2:
        return start
    end, lone_rows = start + 1, 0
    for i in range(start + 1, len(rows)):
        if rows[i].y0 - rows[i - 1].y1 > _MAX_ROW_GAP * height:
            break
        if len(rows[i].runs) >= 2:
            end, lone_rows = i + 1, 0
        else:
            lone_rows += 1
            if lone_rows > 2 or len(rows[i].text) > _MAX_CELL_CHARACTERS:
                break
    return end


def _build_tables(rows: Sequence[LayoutRow], start: int, end: int) -> list[AlignedTable]:
    """Build the table of the rows, or the two that are side by side; none if they are no table."""
    members = rows[start:end]
    multi_run_rows = [row for row in members if len(row.runs) >= 2]
    columns = _find_columns(multi_run_rows)
    if len(multi_run_rows) < 2 or len(columns) < 2 or not _is_tabular(multi_run_rows, columns):
        return []
    cells = [[""] * len(columns) for _ in members]
    for row, row_cells in zip(members, cells, strict=True):
        for run in row.runs:
            for column, text in _split_by_column(run, columns):
                row_cells[column] = f"{row_cells[column]} {text}".strip()
    split = _find_split(cells)
    sides = [slice(0, split), slice(split, None)] if split else [slice(None)]
    tables = []
    for side in sides:
        filled = [
            (row_cells[side], row)
            for row_cells, row in zip(cells, members, strict=True)
            if not split or any(row_cells[side])
        ]
        side_cells, side_rows = [cells for cells, _ in filled], [row for _, row in filled]
        tables.append(AlignedTable(start, end, _merge_continued_rows(side_cells, side_rows)))
    return tables


def _find_split(cells: Sequence[Sequence[str]]) -> int:
    """Return the first column of the right one of two tables side by side, 0 if there is one table.

    Lines of two tables are seldom level with each other.
    """
    for column in range(2, len(cells[0]) - 1):
        sides = [(sum(map(bool, row[:column])), sum(map(bool, row[column:]))) for row in cells]
        n_level = sum(1 for left, right in sides if left and right)
        n_full = [sum(1 for side in sides if side[i] >= 2) for i in (0, 1)]
        n_alone = [sum(1 for side in sides if side[i] and not side[1 - i]) for i in (0, 1)]
        if (
            n_level <= _MAX_LEVEL_SHARE * len(cells)
            and min(n_full) >= 2
            and min(n_alone) >= 1
            and max(n_alone) >= 2
        ):
            return column
    return 0


def _find_columns(multi_run_rows: Sequence[LayoutRow]) -> list[ColumnExtent]:
    """Return the x extents that runs cover in the rows with the most runs."""
    max_runs = max(len(row.runs) for row in multi_run_rows)
    full_runs = [
        run for row in multi_run_rows if len(row.runs) >= max(2, 0.6 * max_runs) for run in row.runs
    ]
    full_runs.sort(key=lambda run: run.width)
    columns = _merge_intervals(full_runs)
    # Drop the widest runs while they join too many columns, as spanning headers do.
    while len(columns) < 0.75 * max_runs and len(full_runs) > max_runs:
        full_runs = full_runs[: -max(1, len(full_runs) // 12)]
        columns = _merge_intervals(full_runs)
    for run in (run for row in multi_run_rows for run in row.runs):
        if not any(run.x0 < right and run.x1 > left for left, right in columns):
            columns = sorted([*columns, (run.x0, run.x1)])
    return columns


def _merge_intervals(runs: Sequence[TextRun]) -> list[ColumnExtent]:
    columns: list[ColumnExtent] = []
    for left, right in sorted((run.x0, run.x1) for run in runs):
        if columns and left < columns[-1][1] - 0.5:
            columns[-1] = (columns[-1][0], max(columns[-1][1], right))
        else:
            columns.append((left, right))
    return columns


def _is_tabular(multi_run_rows: Sequence[LayoutRow], columns: Sequence[ColumnExtent]) -> bool:
    """Return whether most runs have their own column and cells are shorter than sentences."""
    alone_count = total = 0
    for row in multi_run_rows:
        touched_by_run = [_find_touched_columns(run, columns) for run in row.runs]
        flat = [column for touched in touched_by_run for column in touched]
        total += len(touched_by_run)
        alone_count += sum(
            1 for touched in touched_by_run if len(touched) == 1 and flat.count(touched[0]) == 1
        )
    lengths = [len(run.text) for row in multi_run_rows for run in row.runs]
    return (
        alone_count >= _MIN_FITTING_SHARE * total
        and statistics.mean(lengths) <= 0.6 * _MAX_CELL_CHARACTERS
    )


def _find_touched_columns(run: TextRun, columns: Sequence[ColumnExtent]) -> list[int]:
    return [
        i
        for i, (left, right) in enumerate(columns)
        if min(run.x1, right) - max(run.x0, left) > 0.1 * min(run.width, right - left)
    ]


def _split_by_column(run: TextRun, columns: Sequence[ColumnExtent]) -> list[tuple[int, str]]:
    """Return the column and text of each part of a run, split at wide gaps between columns."""
    touched = _find_touched_columns(run, columns)
    if len(touched) < 2 or len(run.words) < 2:
        return [(touched[0] if touched else _find_nearest_column(run, columns), run.text)]
    parts: list[list[int]] = [[0]]
    for i in range(1, len(run.words)):
        previous_word, next_word = run.words[i - 1], run.words[i]
        is_split = next_word.x0 - previous_word.x1 > _MIN_SPLIT_GAP * run.size and any(
            previous_word.x1 <= columns[j + 1][0] + 0.3 * run.size
            and next_word.x0 >= columns[j][1] - 0.3 * run.size
            for j in touched[:-1]
        )
        if is_split:
            parts.append([i])
        else:
            parts[-1].append(i)
    column_texts = []
    for part in parts:
        words = [run.words[i] for i in part]
        part_run = TextRun(words, words[0].x0, run.y0, words[-1].x1, run.y1, run.size)
        column = next(
            iter(_find_touched_columns(part_run, columns)), _find_nearest_column(part_run, columns)
        )
        column_texts.append((column, part_run.text))
    return column_texts


def _find_nearest_column(run: TextRun, columns: Sequence[ColumnExtent]) -> int:
    middle = (run.x0 + run.x1) / 2
    return min(range(len(columns)), key=lambda i: abs(middle - sum(columns[i]) / 2))


def _merge_continued_rows(cells: list[list[str]], rows: Sequence[LayoutRow]) -> list[list[str]]:
    """Merge the lines of cells.

    A row without a first cell that closely follows a fuller row continues it.
    """
    merged = [cells[0]]
    for i in range(1, len(cells)):
        if _is_continuation(merged[-1], cells[i], rows[i - 1], rows[i]):
            merged[-1] = [
                f"{upper_cell} {lower_cell}".strip()
                for upper_cell, lower_cell in zip(merged[-1], cells[i], strict=True)
            ]
        else:
            merged.append(cells[i])
    return merged


def _is_continuation(
    upper_cells: list[str], lower_cells: list[str], upper: LayoutRow, lower: LayoutRow
) -> bool:
    filled = [i for i, cell in enumerate(lower_cells) if cell]
    if not filled or lower_cells[0] or lower.y0 - upper.y1 > 0.45 * (upper.y1 - upper.y0):
        return False
    has_fewer_cells = len(filled) < sum(1 for cell in upper_cells if cell)
    return (
        has_fewer_cells
        and all(upper_cells[i] for i in filled)
        # A line with numbers is a row of its own.
        and not any(lower_cells[i][:1].isdigit() for i in filled)
    )
