"""Reading order of a page with several columns, found by the gutters between them.

A gutter is a vertical gap that no run crosses for several lines, with prose on both sides. The
order is: above the gutter, left of it, right of it, below it; each of the four is split in the same
way. Tables have gaps too, but their cells do not fill the width of a column as lines of prose do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engines.layout.text_runs import TextRun, group_lines, group_rows

_MIN_LINES = 4
_MIN_FILLED_SHARE = 0.6
_MIN_PROSE_CHARACTERS = 14
# Bounds the recursion on pages of scattered runs.
_MAX_DEPTH = 8
_TOUCH_TOLERANCE = 0.3
_MAX_LEVEL_SHARE = 0.75
_MIN_RUNNING_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class _Gutter:
    x: float
    top: float
    bottom: float


def split_regions(runs: Sequence[TextRun], depth: int = 0) -> list[list[TextRun]]:
    """Split the runs into regions in reading order, each with a single column or with tables."""
    gutter = _find_gutter(runs) if depth < _MAX_DEPTH else None
    if gutter is None:
        return [list(runs)] if runs else []
    runs_above = [run for run in runs if run.middle < gutter.top]
    runs_below = [run for run in runs if run.middle > gutter.bottom]
    runs_beside = [run for run in runs if gutter.top <= run.middle <= gutter.bottom]
    # By their middles, because runs may touch the gutter.
    left_runs = [run for run in runs_beside if run.x0 + run.x1 < 2 * gutter.x]
    right_runs = [run for run in runs_beside if run.x0 + run.x1 >= 2 * gutter.x]
    return [
        region
        for part in (runs_above, left_runs, right_runs, runs_below)
        for region in split_regions(part, depth + 1)
    ]


def _find_gutter(runs: Sequence[TextRun]) -> _Gutter | None:
    """Return the tallest gutter, or None."""
    best: tuple[float, _Gutter] | None = None
    for x in _find_gutter_candidates(runs):
        for top, bottom in _find_clear_stretches(runs, x):
            height = bottom - top
            # The cheap comparison first: the test groups the lines again.
            if (best is None or height > best[0]) and (
                gutter := _test_gutter(runs, x, top, bottom)
            ):
                best = (height, gutter)
    return best[1] if best else None


def _find_gutter_candidates(runs: Sequence[TextRun]) -> list[float]:
    """Return the x positions of the most frequent gaps between neighbors on a line."""
    votes: dict[int, list[float]] = {}
    for row in group_lines(runs):
        for left_run, right_run in pairwise(row):
            middle = (left_run.x1 + right_run.x0) / 2
            votes.setdefault(round(middle / (2 * max(left_run.size, 1e-6))), []).append(middle)
    ranked = sorted(
        (middles for middles in votes.values() if len(middles) >= 2), key=len, reverse=True
    )
    return [statistics.median(middles) for middles in ranked[:6]]


def _find_clear_stretches(runs: Sequence[TextRun], x: float) -> list[tuple[float, float]]:
    """Return the vertical ranges in which no run crosses `x` by more than the tolerance."""
    crossing = sorted(
        (run.y0, run.y1)
        for run in runs
        if run.x0 + _TOUCH_TOLERANCE * run.size < x < run.x1 - _TOUCH_TOLERANCE * run.size
    )
    top = min(run.y0 for run in runs) - 1
    stretches = []
    for y0, y1 in [*crossing, (max(run.y1 for run in runs) + 1, 0.0)]:
        if y0 > top:
            stretches.append((top, y0))
        top = max(top, y1)
    return stretches


def _test_gutter(runs: Sequence[TextRun], x: float, top: float, bottom: float) -> _Gutter | None:
    runs_beside = [run for run in runs if top <= run.middle <= bottom]
    left_runs = [run for run in runs_beside if run.x0 + run.x1 < 2 * x]
    right_runs = [run for run in runs_beside if run.x0 + run.x1 >= 2 * x]
    if not left_runs or not right_runs:
        return None
    # Only where both sides have lines, so that a short column is not judged by empty space.
    shared_top = max(min(run.y0 for run in left_runs), min(run.y0 for run in right_runs))
    shared_bottom = min(max(run.y1 for run in left_runs), max(run.y1 for run in right_runs))
    sides = [
        _GutterSide.from_runs([run for run in side if shared_top <= run.middle <= shared_bottom])
        for side in (left_runs, right_runs)
    ]
    return _Gutter(x, top, bottom) if _is_column_pair(*sides) else None


@dataclass(frozen=True, slots=True)
class _GutterSide:
    """Statistics of the lines on one side of a gutter."""

    middles: list[float]
    height: float
    filled_share: float
    """Share of lines that fill most of the side's width with at most two runs."""
    running_share: float
    """Share of lines that begin in the middle of a sentence."""
    characters: float
    """Mean characters per line."""

    @staticmethod
    def from_runs(runs: Sequence[TextRun]) -> _GutterSide:
        side_rows = group_rows(runs)
        if not side_rows:
            return _GutterSide([], 1.0, 0.0, 0.0, 0.0)
        width = max(run.x1 for run in runs) - min(run.x0 for run in runs)
        filled_count = sum(
            1
            for row in side_rows
            if len(row.runs) <= 2
            and sum(run.width for run in row.runs) >= _MIN_FILLED_SHARE * width
        )
        running_count = sum(1 for row in side_rows if row.text[:1].islower())
        middles = [(row.y0 + row.y1) / 2 for row in side_rows]
        return _GutterSide(
            middles,
            statistics.median(row.y1 - row.y0 for row in side_rows),
            filled_count / len(side_rows),
            running_count / len(side_rows),
            statistics.mean(len(row.text) for row in side_rows),
        )

    @property
    def is_prose(self) -> bool:
        return (
            len(self.middles) >= _MIN_LINES
            and self.characters >= _MIN_PROSE_CHARACTERS
            and self.filled_share >= 0.5
        )

    def compute_level_share(self, other_side: _GutterSide) -> float:
        """Return the share of lines at the same height as a line of the other side."""
        level_count = sum(
            1
            for middle in self.middles
            if any(
                abs(middle - other_middle) < 0.2 * self.height
                for other_middle in other_side.middles
            )
        )
        return level_count / max(1, len(self.middles))


def _is_column_pair(left: _GutterSide, right: _GutterSide) -> bool:
    """Return whether the sides are columns of prose, or a column of prose next to a box.

    Where the lines are level, as in tables, sentences must continue from line to line. A box next
    to prose is accepted if its lines are not level with it.
    """
    shorter_side, longer_side = sorted((left, right), key=lambda side: len(side.middles))
    if left.is_prose and right.is_prose:
        return (
            shorter_side.compute_level_share(longer_side) < _MAX_LEVEL_SHARE
            or min(left.running_share, right.running_share) >= _MIN_RUNNING_SHARE
        )
    prose_side, other_side = (
        (left, right) if left.running_share >= right.running_share else (right, left)
    )
    return (
        prose_side.is_prose
        and len(prose_side.middles) >= 2 * _MIN_LINES
        and prose_side.running_share >= 2 * _MIN_RUNNING_SHARE
        and len(other_side.middles) >= _MIN_LINES
        and other_side.compute_level_share(prose_side) < 0.5
    )
