"""Vertical writing: columns of East Asian letters, read from the top and from the right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from engines.layout import TextRun
from engines.layout.text_runs import compute_bounds
from schemas.values import Box

_LETTERS = re.compile(
    r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe10-\ufe4f\uff00-\uffef]+"
)
_MIN_COLUMN_LETTERS = 3
_MAX_STEP = 1.8
"""Distance from letter to letter down a column, in letter sizes."""
_MAX_COLUMN_GAP = 3.0
_SENTENCE_ENDS = ("。", "！", "？", "．", ".", "!", "?")

Column = list[TextRun]


def split_vertical(runs: Sequence[TextRun]) -> tuple[list[TextRun], list[tuple[str, Box]]]:
    """Return the horizontal runs, and each vertical text with its box."""
    columns = [column for column in _find_columns(runs) if _is_vertical(column, runs)]
    if not columns:
        return list(runs), []
    vertical_ids = {id(run) for column in columns for run in column}
    blocks = [
        (_join_columns(group), compute_bounds(run for column in group for run in column))
        for group in _group_columns(columns)
    ]
    return [run for run in runs if id(run) not in vertical_ids], blocks


def _find_columns(runs: Sequence[TextRun]) -> Iterator[Column]:
    column: Column = []
    for run in runs:
        if column and not (_is_upright_letter(run) and _is_below(column[-1], run)):
            yield column
            column = []
        if _is_upright_letter(run):
            column.append(run)
    if column:
        yield column


def _is_upright_letter(run: TextRun) -> bool:
    """Return whether the run is one letter, or letters below each other."""
    return _LETTERS.fullmatch(run.text) is not None and run.width < 1.6 * run.size


def _is_below(upper: TextRun, lower: TextRun) -> bool:
    return (
        abs((upper.x0 + upper.x1) - (lower.x0 + lower.x1)) < upper.size
        and -0.6 * upper.size < lower.y0 - upper.y1 < (_MAX_STEP - 1) * upper.size
        and lower.y0 > upper.y0
    )


def _is_vertical(column: Column, runs: Sequence[TextRun]) -> bool:
    """Return whether the letters are closer to those below them than to those beside them.

    Otherwise they are lines of letters that are set apart.
    """
    if sum(len(run.text) for run in column) < _MIN_COLUMN_LETTERS:
        return False
    step = max((lower.y0 - upper.y1 for upper, lower in pairwise(column)), default=0.0)
    own_ids = {id(run) for run in column}
    x0, y0, x1, y1 = compute_bounds(column)
    gaps = [
        max(run.x0 - x1, x0 - run.x1)
        for run in runs
        if id(run) not in own_ids and run.y0 < y1 and run.y1 > y0
    ]
    return all(gap > step for gap in gaps)


def _group_columns(columns: Sequence[Column]) -> list[list[Column]]:
    """Group the columns that are beside each other, each group from the right."""
    groups: list[list[Column]] = []
    for column in sorted(columns, key=lambda column: -column[0].x1):
        _, y0, x1, y1 = compute_bounds(column)
        for group in groups:
            left, top, _, bottom = compute_bounds(group[-1])
            if left - x1 < _MAX_COLUMN_GAP * column[0].size and min(bottom, y1) - max(
                top, y0
            ) > 0.5 * min(bottom - top, y1 - y0):
                group.append(column)
                break
        else:
            groups.append([column])
    return groups


def _join_columns(columns: Sequence[Column]) -> str:
    """Join the columns; one that ends above the others ends a paragraph."""
    bottom = max(column[-1].y1 for column in columns)
    text = ""
    for i, column in enumerate(columns):
        text += "".join(run.text for run in column)
        is_short = bottom - column[-1].y1 > 1.5 * column[0].size
        if i + 1 < len(columns) and (is_short or text.endswith(_SENTENCE_ENDS)):
            text += "\n"
    return text
