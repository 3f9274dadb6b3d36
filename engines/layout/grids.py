"""Tables with drawn lines: the lines make a grid, and each word belongs to the cell that it stands in.

Lines that touch are one frame. Cells that no line divides are one cell. A row of the grid that holds several text lines side by side (a
body without lines between its rows) is divided by them.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engines.layout.runs import Run, Word, lines
from schemas.values import Box

_NEAR = 3.0
_FEWEST_CELLS = 4
_FILLED = 0.34
_MOST_LINES = 400


@dataclass(slots=True, eq=False)
class _Line:
    """A drawn line, all of its pieces joined: at `at` (y of a level one, x of an upright one), from `start` to `end`."""

    at: float
    start: float
    end: float


@dataclass(slots=True, eq=False)
class _Frame:
    levels: list[_Line] = field(default_factory=list)
    uprights: list[_Line] = field(default_factory=list)


def framed(runs: Sequence[Run], rules: Sequence[Box]) -> list[Run]:
    """The runs with each framed table's own replaced by one that stands for the table."""
    left = list(runs)
    for frame in _frames(rules):
        left = _with_table(left, frame)
    return left


def _with_table(runs: list[Run], frame: _Frame) -> list[Run]:
    xs, ys = _places(line.at for line in frame.uprights), _places(line.at for line in frame.levels)
    if len(xs) < 3 or len(ys) < 3:
        return runs
    inside = [run for run in runs if not run.table and xs[0] <= (run.x0 + run.x1) / 2 <= xs[-1] and ys[0] <= run.middle <= ys[-1]]
    cells = _cells(inside, frame, xs, ys)
    if sum(bool(cell) for row in cells for cell in row) < _FEWEST_CELLS or len(cells) < 2 or len(cells[0]) < 2 or not _is_filled(cells):
        return runs
    table = Run([Word(" ", xs[0], xs[-1])], xs[0], ys[0], xs[-1], ys[-1], statistics.median(run.size for run in inside), table=cells)
    members = {id(run) for run in inside}
    return [*(run for run in runs if id(run) not in members), table]


def _is_filled(cells: list[list[str]]) -> bool:
    return sum(bool(cell) for row in cells for cell in row) >= _FILLED * len(cells) * len(cells[0])


def _frames(rules: Sequence[Box]) -> list[_Frame]:
    """Connected lines, those with at least two of either kind; the largest first."""
    levels = _merged([_Line((y0 + y1) / 2, x0, x1) for x0, y0, x1, y1 in rules if x1 - x0 >= y1 - y0])
    uprights = _merged([_Line((x0 + x1) / 2, y0, y1) for x0, y0, x1, y1 in rules if y1 - y0 > x1 - x0])
    if len(levels) + len(uprights) > _MOST_LINES:
        return []
    frames: list[_Frame] = []
    for upright in uprights:
        touched = [level for level in levels if _cross(level, upright)]
        met = [frame for frame in frames if any(level in frame.levels for level in touched)]
        whole = _Frame([level for frame in met for level in frame.levels], [upright, *(line for frame in met for line in frame.uprights)])
        whole.levels += [level for level in touched if level not in whole.levels]
        frames = [frame for frame in frames if frame not in met] + [whole]
    return [frame for frame in frames if len(frame.levels) >= 2 and len(frame.uprights) >= 2]


def _cross(level: _Line, upright: _Line) -> bool:
    return level.start - _NEAR <= upright.at <= level.end + _NEAR and upright.start - _NEAR <= level.at <= upright.end + _NEAR


def _merged(pieces: list[_Line]) -> list[_Line]:
    """Pieces that continue each other, or lie on each other, as one line."""
    found: list[_Line] = []
    for piece in sorted(pieces, key=lambda piece: (round(piece.at), piece.start)):
        for line in found[-12:]:
            if abs(line.at - piece.at) <= _NEAR / 2 and piece.start <= line.end + _NEAR and line.start <= piece.end + _NEAR:
                line.start, line.end = min(line.start, piece.start), max(line.end, piece.end)
                break
        else:
            found.append(_Line(piece.at, piece.start, piece.end))
    return [line for line in found if line.end - line.start > 2 * _NEAR]


def _places(values: Iterator[float] | Sequence[float]) -> list[float]:
    """Distinct positions, close ones taken as one."""
    found: list[float] = []
    for value in sorted(values):
        if not found or value - found[-1] > _NEAR:
            found.append(value)
    return found


def _cells(inside: Sequence[Run], frame: _Frame, xs: list[float], ys: list[float]) -> list[list[str]]:
    """Text by grid cell, in reading order; joined cells have it in their first one."""
    home = _joined(frame, xs, ys, inside)
    held: dict[tuple[int, int], list[Run]] = {}
    for run in inside:
        for piece in _split(run, xs):
            column = min(max(bisect_right(xs, (piece.x0 + piece.x1) / 2) - 1, 0), len(xs) - 2)
            row = min(max(bisect_right(ys, piece.middle) - 1, 0), len(ys) - 2)
            held.setdefault(home[row, column], []).append(piece)
    rows = [part for row in range(len(ys) - 1) for part in _row(row, len(xs) - 1, held)]
    used = [column for column in range(len(xs) - 1) if any(row[column] for row in rows)]
    return [[row[column] for column in used] for row in rows if any(row)]


def _split(run: Run, xs: Sequence[float]) -> Iterator[Run]:
    """A run in the pieces that upright lines cut it into, between words."""
    words: list[Word] = []
    for word in run.words:
        if words and bisect_right(xs, (words[-1].x0 + words[-1].x1) / 2) != bisect_right(xs, (word.x0 + word.x1) / 2):
            yield Run(words, words[0].x0, run.y0, words[-1].x1, run.y1, run.size)
            words = []
        words.append(word)
    yield Run(words, words[0].x0, run.y0, words[-1].x1, run.y1, run.size)


def _joined(frame: _Frame, xs: Sequence[float], ys: Sequence[float], inside: Sequence[Run]) -> dict[tuple[int, int], tuple[int, int]]:
    """For each cell the first one of those that it is one with: no line between them, and side by side also a run across."""
    home: dict[tuple[int, int], tuple[int, int]] = {}
    crossed = {(bisect_right(ys, run.middle) - 1, column) for run in inside for column in range(bisect_right(xs, run.x0 + 1), bisect_right(xs, run.x1 - 1))}
    for row in range(len(ys) - 1):
        for column in range(len(xs) - 1):
            middle_x, middle_y = (xs[column] + xs[column + 1]) / 2, (ys[row] + ys[row + 1]) / 2
            if column and (row, column) in crossed and not _drawn(frame.uprights, xs[column], middle_y):
                home[row, column] = home[row, column - 1]
            elif row and not _drawn(frame.levels, ys[row], middle_x):
                home[row, column] = home[row - 1, column]
            else:
                home[row, column] = (row, column)
    return home


def _drawn(found: Sequence[_Line], at: float, along: float) -> bool:
    return any(abs(line.at - at) <= 1.5 * _NEAR and line.start <= along <= line.end for line in found)


def _row(row: int, columns: int, held: dict[tuple[int, int], list[Run]]) -> Iterator[list[str]]:
    """One row of the grid; several, where it holds rows of text that no line divides."""
    cells = {column: lines(held[row, column]) for column in range(columns) if (row, column) in held}
    counts = [len(found) for found in cells.values()]
    if len(counts) >= 2 and max(counts) >= 3 and _is_list_of_rows(list(cells.values())):
        tops = [found[0].middle for found in max(cells.values(), key=len)]
        for i in range(len(tops)):
            yield [_text([line for line in cells.get(column, []) if _nearest(tops, line[0].middle) == i]) for column in range(columns)]
    else:
        yield [_text(cells.get(column, [])) for column in range(columns)]


def _is_list_of_rows(cells: Sequence[list[list[Run]]]) -> bool:
    """Most cells have as many lines as the longest, at the same heights."""
    longest = max(cells, key=len)
    even = sum(1 for cell in cells if len(cell) >= 0.8 * len(longest))
    return even >= 0.7 * len(cells) and even >= 2


def _nearest(tops: Sequence[float], at: float) -> int:
    return min(range(len(tops)), key=lambda i: abs(tops[i] - at))


def _text(found: Sequence[list[Run]]) -> str:
    from engines.layout.lines import joined

    return joined([" ".join(run.text for run in line) for line in found])
