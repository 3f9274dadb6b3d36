"""Reading order: columns of prose are found by the empty stretches between them, and read one after another.

A gutter is a vertical stretch that no run crosses for several lines and that has prose on both sides. What is above it is read first, then
its left side, its right side, and what is below; each of the four is divided in the same way. Tables have gaps too, but their cells do not
fill their columns as lines of prose do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engines.layout.runs import Run, lines, rows

_FEWEST_LINES = 4
_FILLED = 0.6
_PROSE_CHARACTERS = 14
_DEEPEST = 8
_TOUCH = 0.3
_LEVEL = 0.75
_RUNNING = 0.2


@dataclass(frozen=True, slots=True)
class _Gutter:
    x: float
    top: float
    bottom: float


def regions(runs: Sequence[Run], depth: int = 0) -> list[list[Run]]:
    """The runs in groups to be read one after another, each of one column or with tables."""
    gutter = _gutter(runs) if depth < _DEEPEST else None
    if gutter is None:
        return [list(runs)] if runs else []
    above = [run for run in runs if run.middle < gutter.top]
    below = [run for run in runs if run.middle > gutter.bottom]
    beside = [run for run in runs if gutter.top <= run.middle <= gutter.bottom]
    left = [run for run in beside if run.x0 + run.x1 < 2 * gutter.x]
    right = [run for run in beside if run.x0 + run.x1 >= 2 * gutter.x]
    return [region for part in (above, left, right, below) for region in regions(part, depth + 1)]


def _gutter(runs: Sequence[Run]) -> _Gutter | None:
    """The tallest gutter, if there is any."""
    best: tuple[float, _Gutter] | None = None
    for x in _candidates(runs):
        for top, bottom in _stretches(runs, x):
            height = bottom - top
            if (best is None or height > best[0]) and (found := _tested(runs, x, top, bottom)):
                best = (height, found)
    return best[1] if best else None


def _candidates(runs: Sequence[Run]) -> list[float]:
    """Middles of the gaps between neighbours on a row, most frequent first."""
    votes: dict[int, list[float]] = {}
    for row in lines(runs):
        for one, other in pairwise(row):
            middle = (one.x1 + other.x0) / 2
            votes.setdefault(round(middle / (2 * max(one.size, 1e-6))), []).append(middle)
    ranked = sorted((middles for middles in votes.values() if len(middles) >= 2), key=len, reverse=True)
    return [statistics.median(middles) for middles in ranked[:6]]


def _stretches(runs: Sequence[Run], x: float) -> list[tuple[float, float]]:
    """Heights between the runs that cross `x`, by more than a touch."""
    crossing = sorted((run.y0, run.y1) for run in runs if run.x0 + _TOUCH * run.size < x < run.x1 - _TOUCH * run.size)
    top = min(run.y0 for run in runs) - 1
    found = []
    for y0, y1 in [*crossing, (max(run.y1 for run in runs) + 1, 0.0)]:
        if y0 > top:
            found.append((top, y0))
        top = max(top, y1)
    return found


def _tested(runs: Sequence[Run], x: float, top: float, bottom: float) -> _Gutter | None:
    beside = [run for run in runs if top <= run.middle <= bottom]
    left = [run for run in beside if run.x0 + run.x1 < 2 * x]
    right = [run for run in beside if run.x0 + run.x1 >= 2 * x]
    if not left or not right:
        return None
    shared_top = max(min(run.y0 for run in left), min(run.y0 for run in right))
    shared_bottom = min(max(run.y1 for run in left), max(run.y1 for run in right))
    sides = [_Side.of([run for run in side if shared_top <= run.middle <= shared_bottom]) for side in (left, right)]
    return _Gutter(x, top, bottom) if _are_columns(*sides) else None


@dataclass(frozen=True, slots=True)
class _Side:
    """What the lines on one side of a gutter are like."""

    middles: list[float]
    height: float
    filled: float
    """share of lines that fill most of the width with one run"""
    running: float
    """share of lines that begin in the middle of a sentence"""
    characters: float

    @staticmethod
    def of(runs: Sequence[Run]) -> _Side:
        found = rows(runs)
        if not found:
            return _Side([], 1.0, 0.0, 0.0, 0.0)
        width = max(run.x1 for run in runs) - min(run.x0 for run in runs)
        filled = sum(1 for row in found if len(row.runs) <= 2 and sum(run.width for run in row.runs) >= _FILLED * width)
        running = sum(1 for row in found if row.text[:1].islower())
        middles = [(row.y0 + row.y1) / 2 for row in found]
        return _Side(
            middles,
            statistics.median(row.y1 - row.y0 for row in found),
            filled / len(found),
            running / len(found),
            statistics.mean(len(row.text) for row in found),
        )

    @property
    def is_prose(self) -> bool:
        return len(self.middles) >= _FEWEST_LINES and self.characters >= _PROSE_CHARACTERS and self.filled >= 0.5

    def level_with(self, other: _Side) -> float:
        """Share of lines that stand at the height of a line of the other side."""
        near = sum(1 for middle in self.middles if any(abs(middle - beside) < 0.2 * self.height for beside in other.middles))
        return near / max(1, len(self.middles))


def _are_columns(left: _Side, right: _Side) -> bool:
    """Prose on both sides; where the lines stand level, as cells do too, sentences must run on from line to line. Or running prose beside
    something that does not keep to its lines (a box at the side)."""
    few, many = sorted((left, right), key=lambda side: len(side.middles))
    if left.is_prose and right.is_prose:
        return few.level_with(many) < _LEVEL or min(left.running, right.running) >= _RUNNING
    prose, other = (left, right) if left.running >= right.running else (right, left)
    return (
        prose.is_prose
        and len(prose.middles) >= 2 * _FEWEST_LINES
        and prose.running >= 2 * _RUNNING
        and len(other.middles) >= _FEWEST_LINES
        and other.level_with(prose) < 0.5
    )
