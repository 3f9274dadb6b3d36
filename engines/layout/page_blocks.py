"""Conversion of a page's runs to blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from engines.layout.aligned_tables import find_aligned_tables
from engines.layout.reading_order import split_regions
from engines.layout.text_blocks import (
    TextLine,
    build_text_blocks,
    measure_region,
)
from engines.layout.text_runs import (
    JOIN_GAP,
    LayoutPage,
    LayoutRow,
    TextRun,
    compute_body_height,
    compute_bounds,
    compute_line_height,
    group_rows,
)
from engines.parsed_blocks import ParsedBlock, format_table, has_header
from schemas.values import Box

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
    lines = [TextLine.from_row(row) for row in region_rows]
    metrics = measure_region(lines, body_height, has_fonts)
    for text in build_text_blocks(lines, metrics):
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
            merged[-1].box = _merge_boxes(merged[-1].box, block.box)
        else:
            merged.append(block)
    return merged


def _merge_boxes(first_box: Box | None, second_box: Box | None) -> Box | None:
    if first_box is None or second_box is None:
        return first_box or second_box
    return (
        min(first_box[0], second_box[0]),
        min(first_box[1], second_box[1]),
        max(first_box[2], second_box[2]),
        max(first_box[3], second_box[3]),
    )
