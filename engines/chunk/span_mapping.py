"""Mapping of Markdown ranges back to pages, boxes, elements and cells of the source."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from schemas.values import Block, Span, Transcript

_CELL_RANGE = re.compile(r"([A-Z]+)(\d+)(?::([A-Z]+)(\d+))?")


class SpanMapper:
    """Maps ranges of a transcript to spans, one for each block that a range touches, in order."""

    def __init__(self, transcript: Transcript) -> None:
        self._markdown = transcript.markdown
        self._blocks: Sequence[Block] = transcript.blocks
        self._starts = [block.span.char_start for block in transcript.blocks]

    def find_blocks(self, start: int, end: int) -> list[Block]:
        touched_blocks = []
        for i in range(max(0, bisect_right(self._starts, start) - 1), len(self._blocks)):
            block = self._blocks[i]
            if block.span.char_start >= end:
                break
            if block.span.char_end > start:
                touched_blocks.append(block)
        return touched_blocks

    def map_spans(self, start: int, end: int) -> list[Span]:
        return [
            self._clip_span(block, max(start, block.span.char_start), min(end, block.span.char_end))
            for block in self.find_blocks(start, end)
        ]

    def find_pages(self, start: int, end: int) -> list[int]:
        return sorted(
            {
                block.span.page
                for block in self.find_blocks(start, end)
                if block.span.page is not None
            }
        )

    def _clip_span(self, block: Block, start: int, end: int) -> Span:
        cells = block.span.cells
        if cells and block.kind == "table":
            cells = self._clip_cells(block, cells, start, end)
        return block.span.model_copy(update={"char_start": start, "char_end": end, "cells": cells})

    def _clip_cells(self, block: Block, cells: str, start: int, end: int) -> str:
        """Return the cell range of the table rows in `[start, end)`."""
        # Each line of the table is a row of the sheet, except for the delimiter row after the
        # headers.
        cell_range = _CELL_RANGE.fullmatch(cells)
        if not cell_range or not cell_range[3] or block.header_end is None:
            return cells
        headers = self._markdown.count("\n", block.span.char_start, block.header_end)
        rows = [
            self._markdown.count("\n", block.span.char_start, offset)
            for offset in (start, max(start, end - 1))
        ]
        top, bottom = (
            int(cell_range[2]) + (row if row < headers else max(row - 1, headers - 1))
            for row in rows
        )
        return f"{cell_range[1]}{top}:{cell_range[3]}{bottom}"
