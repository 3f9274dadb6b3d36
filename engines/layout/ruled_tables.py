"""Tables with ruling lines, which form a grid whose cells contain the words.

Lines that touch form one frame. Cells without a line between them are merged. A grid row that holds
several text lines side by side (a table body without lines between its rows) is split by them.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from engines.layout.text_blocks import join_lines
from engines.layout.text_runs import LayoutWord, TextRun, group_lines
from schemas.values import Box

_TOLERANCE = 3.0
_MIN_FILLED_CELLS = 4
_MIN_FILLED_SHARE = 0.34
# More lines are a drawing, and comparing each with each would be slow.
_MAX_LINES = 400


@dataclass(slots=True, eq=False)
class _RuledLine:
    """A line from `start` to `end` at `position`, its y if horizontal or its x if vertical."""

    position: float
    start: float
    end: float


@dataclass(slots=True, eq=False)
class _TableFrame:
    horizontals: list[_RuledLine] = field(default_factory=list)
    verticals: list[_RuledLine] = field(default_factory=list)


def replace_ruled_tables(runs: Sequence[TextRun], rules: Sequence[Box]) -> list[TextRun]:
    """Replace the runs inside each framed table by one run that represents the table."""
    remaining = list(runs)
    for frame in _find_frames(rules):
        remaining = _replace_frame(remaining, frame)
    return remaining


def _replace_frame(runs: list[TextRun], frame: _TableFrame) -> list[TextRun]:
    xs = _merge_positions(line.position for line in frame.verticals)
    ys = _merge_positions(line.position for line in frame.horizontals)
    # Two lines each way are a frame around text, not a table.
    if len(xs) < 3 or len(ys) < 3:
        return runs
    frame_runs = [
        run
        for run in runs
        if not run.table
        and xs[0] <= (run.x0 + run.x1) / 2 <= xs[-1]
        and ys[0] <= run.middle <= ys[-1]
    ]
    cells = _build_cells(frame_runs, frame, xs, ys)
    n_filled = sum(bool(cell) for row in cells for cell in row)
    if (
        len(cells) < 2
        or len(cells[0]) < 2
        or n_filled < max(_MIN_FILLED_CELLS, _MIN_FILLED_SHARE * len(cells) * len(cells[0]))
    ):
        return runs
    table = TextRun(
        # The content is in `table`; the word only gives the run a width.
        [LayoutWord(" ", xs[0], xs[-1])],
        xs[0],
        ys[0],
        xs[-1],
        ys[-1],
        statistics.median(run.size for run in frame_runs),
        table=cells,
    )
    members = {id(run) for run in frame_runs}
    return [*(run for run in runs if id(run) not in members), table]


def _find_frames(rules: Sequence[Box]) -> list[_TableFrame]:
    """Return the groups of connected lines, at least two in each direction; none on a drawing."""
    horizontals = _merge_pieces(
        [_RuledLine((y0 + y1) / 2, x0, x1) for x0, y0, x1, y1 in rules if x1 - x0 >= y1 - y0]
    )
    verticals = _merge_pieces(
        [_RuledLine((x0 + x1) / 2, y0, y1) for x0, y0, x1, y1 in rules if y1 - y0 > x1 - x0]
    )
    if len(horizontals) + len(verticals) > _MAX_LINES:
        return []
    frames: list[_TableFrame] = []
    # Each vertical line joins all the frames that it touches.
    for vertical in verticals:
        touched_horizontals = [
            horizontal
            for horizontal in horizontals
            if horizontal.start - _TOLERANCE <= vertical.position <= horizontal.end + _TOLERANCE
            and vertical.start - _TOLERANCE <= horizontal.position <= vertical.end + _TOLERANCE
        ]
        touched_frames = [
            frame
            for frame in frames
            if any(horizontal in frame.horizontals for horizontal in touched_horizontals)
        ]
        merged_frame = _TableFrame(
            [horizontal for frame in touched_frames for horizontal in frame.horizontals],
            [vertical, *(line for frame in touched_frames for line in frame.verticals)],
        )
        merged_frame.horizontals += [
            horizontal
            for horizontal in touched_horizontals
            if horizontal not in merged_frame.horizontals
        ]
        frames = [frame for frame in frames if frame not in touched_frames] + [merged_frame]
    return [frame for frame in frames if len(frame.horizontals) >= 2 and len(frame.verticals) >= 2]


def _merge_pieces(pieces: list[_RuledLine]) -> list[_RuledLine]:
    """Merge pieces that continue or overlap each other."""
    merged_lines: list[_RuledLine] = []
    for piece in sorted(pieces, key=lambda piece: (round(piece.position), piece.start)):
        for line in merged_lines[-12:]:  # sorted, so a piece of the same line is among the latest
            if (
                abs(line.position - piece.position) <= _TOLERANCE / 2
                and piece.start <= line.end + _TOLERANCE
                and line.start <= piece.end + _TOLERANCE
            ):
                line.start, line.end = min(line.start, piece.start), max(line.end, piece.end)
                break
        else:
            merged_lines.append(_RuledLine(piece.position, piece.start, piece.end))
    return [line for line in merged_lines if line.end - line.start > 2 * _TOLERANCE]


def _merge_positions(values: Iterator[float] | Sequence[float]) -> list[float]:
    """Return the distinct positions in order, treating close ones as one."""
    positions: list[float] = []
    for value in sorted(values):
        if not positions or value - positions[-1] > _TOLERANCE:
            positions.append(value)
    return positions


def _build_cells(
    frame_runs: Sequence[TextRun], frame: _TableFrame, xs: list[float], ys: list[float]
) -> list[list[str]]:
    """Return the text of each cell by row.

    Cells that are merged side by side all have it. Empty rows and columns are dropped.
    """
    home_cells = _find_home_cells(frame, xs, ys, frame_runs)
    runs_by_cell: dict[tuple[int, int], list[TextRun]] = {}
    for run in frame_runs:
        for piece in _split_at_verticals(run, xs):
            column = min(max(bisect_right(xs, (piece.x0 + piece.x1) / 2) - 1, 0), len(xs) - 2)
            row = min(max(bisect_right(ys, piece.middle) - 1, 0), len(ys) - 2)
            runs_by_cell.setdefault(home_cells[row, column], []).append(piece)
    rows = [
        (part, _fill_spans(part, row, home_cells))
        for row in range(len(ys) - 1)
        for part in _split_row(row, len(xs) - 1, runs_by_cell)
    ]
    used = [column for column in range(len(xs) - 1) if any(part[column] for part, _ in rows)]
    return [[filled[column] for column in used] for part, filled in rows if any(part)]


def _fill_spans(
    cells: list[str], row: int, home_cells: dict[tuple[int, int], tuple[int, int]]
) -> list[str]:
    """Repeat a text in the columns that it spans, unless it is a title across the whole table."""
    homes = [home_cells[row, column] for column in range(len(cells))]
    if len(set(homes)) == 1:
        return cells
    return [
        cells[home[1]] if home[0] == row else cell for cell, home in zip(cells, homes, strict=True)
    ]


def _split_at_verticals(run: TextRun, xs: Sequence[float]) -> Iterator[TextRun]:
    """Split a run between words at the vertical lines."""
    for _, group in groupby(run.words, lambda word: bisect_right(xs, (word.x0 + word.x1) / 2)):
        words = list(group)
        yield TextRun(words, words[0].x0, run.y0, words[-1].x1, run.y1, run.size)


def _find_home_cells(
    frame: _TableFrame, xs: Sequence[float], ys: Sequence[float], frame_runs: Sequence[TextRun]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the first cell of the merged cell that each cell belongs to.

    Cells are merged if no line separates them; cells side by side only if a run also crosses the
    boundary.
    """
    home_cells: dict[tuple[int, int], tuple[int, int]] = {}
    crossed_cells = {
        (bisect_right(ys, run.middle) - 1, column)
        for run in frame_runs
        for column in range(bisect_right(xs, run.x0 + 1), bisect_right(xs, run.x1 - 1))
    }
    for row in range(len(ys) - 1):
        for column in range(len(xs) - 1):
            middle_x, middle_y = (xs[column] + xs[column + 1]) / 2, (ys[row] + ys[row + 1]) / 2
            if (
                column
                and (row, column) in crossed_cells
                and not _is_line_drawn(frame.verticals, xs[column], middle_y)
            ):
                home_cells[row, column] = home_cells[row, column - 1]
            elif row and not _is_line_drawn(frame.horizontals, ys[row], middle_x):
                home_cells[row, column] = home_cells[row - 1, column]
            else:
                home_cells[row, column] = (row, column)
    return home_cells


def _is_line_drawn(
    ruled_lines: Sequence[_RuledLine], position: float, crossing_position: float
) -> bool:
    return any(
        abs(line.position - position) <= 1.5 * _TOLERANCE
        and line.start <= crossing_position <= line.end
        for line in ruled_lines
    )


def _split_row(
    row: int, columns: int, runs_by_cell: dict[tuple[int, int], list[TextRun]]
) -> Iterator[list[str]]:
    """Yield the rows of text in one grid row: several if it holds rows that no line separates."""
    cells = {
        column: group_lines(runs_by_cell[row, column])
        for column in range(columns)
        if (row, column) in runs_by_cell
    }
    counts = [len(cell_lines) for cell_lines in cells.values()]
    full_cell_count = sum(1 for count in counts if count >= 0.8 * max(counts))
    # Most cells have about as many lines as the longest.
    if max(counts, default=0) >= 3 and full_cell_count >= max(2, 0.7 * len(counts)):
        tops = [cell_lines[0].middle for cell_lines in max(cells.values(), key=len)]
        for i in range(len(tops)):
            yield [
                _join_text(
                    [
                        line
                        for line in cells.get(column, [])
                        if min(range(len(tops)), key=lambda k: abs(tops[k] - line[0].middle)) == i
                    ]
                )
                for column in range(columns)
            ]
    else:
        yield [_join_text(cells.get(column, [])) for column in range(columns)]


def _join_text(cell_lines: Sequence[list[TextRun]]) -> str:
    return join_lines([" ".join(run.text for run in line) for line in cell_lines])
