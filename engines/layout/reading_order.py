"""Blocks of a page in reading order, and the gutters between the columns that decide it.

A gutter is a vertical gap that no run crosses for several lines, with prose on both sides. The
order is: above the gutter, left of it, right of it, below it; each of the four is split in the same
way. Tables have gaps too, but their cells do not fill the width of a column as lines of prose do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engines.layout.aligned_tables import find_aligned_tables
from engines.layout.text_blocks import build_text_blocks, measure_region
from engines.layout.text_runs import (
    JOIN_GAP,
    LayoutPage,
    LayoutRow,
    TextRun,
    compute_body_height,
    compute_bounds,
    compute_line_height,
    group_lines,
    group_rows,
    merge_boxes,
)
from engines.parsed_blocks import ParsedBlock, format_table, has_header

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


# Conversion of a page's runs to blocks.

_OCR_JOIN_GAP = 0.45
"""Smaller than JOIN_GAP, because OCR boxes already cover whole lines."""


def compute_pages_body_height(pages: Iterable[LayoutPage]) -> float:
    """Return the letter height of the body text on several pages."""
    return compute_body_height(run for page in pages for run in page.runs)


def build_blocks(page: LayoutPage, body_height: float, *, has_fonts: bool) -> list[ParsedBlock]:
    """Build the page's blocks in reading order.

    Without `has_fonts` (OCR), sizes are rough and weights unknown.
    """
    blocks: list[ParsedBlock] = []
    running_ids = {id(run) for line in page.running_lines for run in line}
    body = [run for run in page.runs if id(run) not in running_ids]
    middle = min((run.y0 for run in body), default=0.0)
    above = [line for line in page.running_lines if line[0].y0 < middle]
    below = [line for line in page.running_lines if line[0].y0 >= middle]
    for region in [*above, *split_regions(body), *below]:
        rows = group_rows(region, JOIN_GAP if has_fonts else _OCR_JOIN_GAP)
        start = 0
        # The ruled tables in place, and the blocks of the rows between them.
        for i in [*(i for i, row in enumerate(rows) if row.runs[0].table), len(rows)]:
            blocks += _build_stretch(page, rows[start:i], body_height, has_fonts)
            if i < len(rows):
                blocks.append(_build_table(page, rows[i].runs[0].table or [], rows[i].runs))
            start = i + 1
    return _merge_lists(blocks)


def _build_stretch(
    page: LayoutPage, region_rows: Sequence[LayoutRow], body_height: float, has_fonts: bool
) -> Iterator[ParsedBlock]:
    next_row = 0
    for aligned_table in find_aligned_tables(region_rows, compute_line_height(region_rows)):
        yield from _build_prose(
            page, region_rows[next_row : aligned_table.start], body_height, has_fonts
        )
        yield _build_table(
            page,
            aligned_table.cells,
            [
                run
                for row in region_rows[aligned_table.start : aligned_table.end]
                for run in row.runs
            ],
        )
        next_row = aligned_table.end
    yield from _build_prose(page, region_rows[next_row:], body_height, has_fonts)


def _build_table(page: LayoutPage, cells: list[list[str]], runs: Sequence[TextRun]) -> ParsedBlock:
    text, end, _ = format_table(cells, _count_header_rows(cells))
    return _set_location(page, ParsedBlock("table", text, header_end=end), runs)


def _count_header_rows(cells: list[list[str]]) -> int:
    first_row = cells[0]
    # Names that span columns have the names of these below them.
    has_span = any(left and left == right for left, right in pairwise(first_row)) or (
        not all(first_row) and any(first_row[1:])
    )
    if (
        has_span
        and len(cells) > 2
        and has_header(cells[1:], by_convention=False)
        # A column with one name for both rows has it in one of them.
        and all(upper or lower for upper, lower in zip(first_row, cells[1], strict=True))
    ):
        return 2
    return int(has_header(cells, by_convention=True))


def _build_prose(
    page: LayoutPage, region_rows: Sequence[LayoutRow], body_height: float, has_fonts: bool
) -> Iterator[ParsedBlock]:
    if not region_rows:
        return
    metrics = measure_region(region_rows, body_height, has_fonts)
    for text in build_text_blocks(region_rows, metrics):
        block = ParsedBlock(text.kind, text.text)
        if text.kind == "heading":
            size = max(line.size for line in text.lines)
            block.size = round(max(size, metrics.body_height) * page.unit, 2)
        elif text.kind == "code":
            block.text = f"```\n{text.text}\n```"
        yield _set_location(page, block, [run for line in text.lines for run in line.runs])


def _set_location(page: LayoutPage, block: ParsedBlock, runs: Sequence[TextRun]) -> ParsedBlock:
    block.page = page.number
    block.box = page.to_page_box(compute_bounds(runs))
    return block


def _merge_lists(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Merge consecutive list blocks into one."""
    merged: list[ParsedBlock] = []
    for block in blocks:
        if merged and block.kind == "list" == merged[-1].kind:
            merged[-1].text += f"\n{block.text}"
            merged[-1].box = merge_boxes(filter(None, (merged[-1].box, block.box)))
        else:
            merged.append(block)
    return merged
