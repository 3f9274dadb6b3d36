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
                best = (found.bottom - found.top, found)
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
    """Heights between the runs that cross `x`."""
    crossing = sorted((run.y0, run.y1) for run in runs if run.x0 < x < run.x1)
    top = min(run.y0 for run in runs) - 1
    found = []
    for y0, y1 in [*crossing, (max(run.y1 for run in runs) + 1, 0.0)]:
        if y0 > top:
            found.append((top, y0))
        top = max(top, y1)
    return found


def _tested(runs: Sequence[Run], x: float, top: float, bottom: float) -> _Gutter | None:
    beside = [run for run in runs if top <= run.middle <= bottom]
    left = [run for run in beside if run.x1 <= x]
    right = [run for run in beside if run.x0 >= x]
    if not left or not right:
        return None
    shared_top = max(min(run.y0 for run in left), min(run.y0 for run in right))
    shared_bottom = min(max(run.y1 for run in left), max(run.y1 for run in right))
    both = [[run for run in side if shared_top <= run.middle <= shared_bottom] for side in (left, right)]
    if not all(_is_prose(side) for side in both) or _gap(both[0], both[1]) < 0.5 * statistics.median(run.size for run in beside):
        return None
    return _Gutter(x, top, bottom)


def _gap(left: Sequence[Run], right: Sequence[Run]) -> float:
    return min(run.x0 for run in right) - max(run.x1 for run in left)


def _is_prose(side: Sequence[Run]) -> bool:
    """Several lines, most of them filled by one run that is long enough for a line of words."""
    found = rows(side)
    if len(found) < _FEWEST_LINES:
        return False
    width = max(run.x1 for run in side) - min(run.x0 for run in side)
    filled = sum(1 for row in found if len(row.runs) <= 2 and sum(run.width for run in row.runs) >= _FILLED * width)
    characters = statistics.mean(len(row.text) for row in found)
    return characters >= _PROSE_CHARACTERS and filled >= 0.5 * len(found)
