"""Chunks with stable ids, and the detection of repetitive text, in linear time.

The same text in the same section of a document has the same id in every revision.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from uuid import UUID

from engines.language import estimate_tokens
from schemas.ids import content_id
from schemas.values import Block, BlockKind, ChildChunk, ParentChunk, Span, Transcript

_MAX_PERIOD = 64
_WINDOW_CHARACTERS = 4096


def find_period(text: str) -> int | None:
    """Return the period, at most 64 characters, with which the whole text repeats, or None."""
    # Compare a short prefix first: most periods fail there, without copying the text.
    periods = range(1, min(_MAX_PERIOD, len(text) // 2) + 1)
    return next(
        (
            period
            for period in periods
            if text.startswith(text[:16], period) and text[period:] == text[:-period]
        ),
        None,
    )


def count_repeated_characters(text: str) -> int:
    """Count the characters in windows of 4,096 that consist of repetition."""
    return sum(
        _WINDOW_CHARACTERS
        for start in range(0, len(text) - _WINDOW_CHARACTERS + 1, _WINDOW_CHARACTERS)
        if find_period(text[start : start + _WINDOW_CHARACTERS])
    )


HeadingPath = tuple[str, ...]
_MAX_HEADING_CHARACTERS = 200
_MAX_HEADER_CHARACTERS = 800
_MIN_REPETITION_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class ChildCut:
    start: int
    end: int
    path: HeadingPath


@dataclass(frozen=True, slots=True)
class ParentCut:
    start: int
    end: int
    path: HeadingPath
    children: Sequence[ChildCut]


def build_chunks(
    document_id: UUID, title: str | None, transcript: Transcript, parents: Sequence[ParentCut]
) -> list[ParentChunk]:
    builder = _ChunkBuilder(document_id, title, transcript, SpanMapper(transcript))
    distinct_parents = _drop_repetitions(transcript.markdown, parents)
    return [
        builder.build_parent(ordinal, parent) for ordinal, parent in enumerate(distinct_parents)
    ]


def _drop_repetitions(markdown: str, parents: Sequence[ParentCut]) -> Iterator[ParentCut]:
    """Drop children that repeat the same few characters as an earlier child of the section."""
    seen: set[tuple[HeadingPath, str]] = set()
    for parent in parents:
        children = []
        for child in parent.children:
            text = markdown[child.start : child.end]
            if len(text) >= _MIN_REPETITION_CHARACTERS and (period := find_period(text)):
                # The smallest rotation, so that texts that start at different offsets of the
                # pattern compare equal.
                pattern = min(text[i : i + period] for i in range(period))
                if (child.path, pattern) in seen:
                    continue
                seen.add((child.path, pattern))
            children.append(child)
        if children:
            yield replace(parent, children=children)


class _ChunkBuilder:
    def __init__(
        self, document_id: UUID, title: str | None, transcript: Transcript, span_mapper: SpanMapper
    ) -> None:
        self._document_id = document_id
        self._title = title
        self._markdown = transcript.markdown
        self._span_mapper = span_mapper
        self._occurrence_counts: Counter[tuple[str, HeadingPath, str]] = Counter()
        self._child_count = 0

    def build_parent(self, ordinal: int, cut: ParentCut) -> ParentChunk:
        text = self._markdown[cut.start : cut.end]
        return ParentChunk(
            id=self._make_id("parent", cut.path, text),
            ordinal=ordinal,
            text=text,
            section=" > ".join(cut.path),
            char_start=cut.start,
            char_end=cut.end,
            pages=self._span_mapper.find_pages(cut.start, cut.end),
            tokens=estimate_tokens(text),
            children=[self._build_child(child) for child in cut.children],
        )

    def _build_child(self, cut: ChildCut) -> ChildChunk:
        text = self._markdown[cut.start : cut.end]
        blocks = self._span_mapper.find_blocks(cut.start, cut.end)
        # The kind of its blocks if they share one, captions aside.
        kinds = {block.kind for block in blocks}
        kinds = kinds - {"caption"} or kinds
        kind: BlockKind = kinds.pop() if len(kinds) == 1 else "paragraph"
        self._child_count += 1
        return ChildChunk(
            id=self._make_id("chunk", cut.path, text),
            ordinal=self._child_count - 1,
            kind=kind,
            text=text,
            prefix=self._build_prefix(cut),
            char_start=cut.start,
            char_end=cut.end,
            spans=self._span_mapper.map_spans(cut.start, cut.end),
            tokens=estimate_tokens(text),
            language=blocks[0].language if kind == "code" else None,
        )

    def _make_id(self, kind: str, path: HeadingPath, text: str) -> UUID:
        # Numbers repeated texts, whose ids would otherwise be equal.
        self._occurrence_counts[kind, path, text] += 1
        return content_id(
            kind, self._document_id, path, text, self._occurrence_counts[kind, path, text]
        )

    def _build_prefix(self, cut: ChildCut) -> str:
        names = [name[:_MAX_HEADING_CHARACTERS] for name in cut.path]
        # The first heading often repeats the title.
        if self._title and (
            not names
            or names[0].casefold() != self._title.strip().casefold()[:_MAX_HEADING_CHARACTERS]
        ):
            names.insert(0, self._title.strip()[:_MAX_HEADING_CHARACTERS])
        return "\n".join(part for part in (" > ".join(names), self._find_table_header(cut)) if part)

    def _find_table_header(self, cut: ChildCut) -> str:
        """Return the header rows of the table that the cut continues, without the delimiter row."""
        block = self._span_mapper.find_blocks(cut.start, cut.end)[0]
        if block.header_end is None or cut.start < block.header_end:
            return ""
        header = self._markdown[block.span.char_start : block.header_end].rsplit("\n", 1)[0][
            :_MAX_HEADER_CHARACTERS
        ]
        return header if header.strip("| \n") else ""


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
        spans = []
        for block in self.find_blocks(start, end):
            span = block.span.clip(start, end)
            if span.cells and block.kind == "table":
                cells = self._clip_cells(block, span.cells, span.char_start, span.char_end)
                span = span.model_copy(update={"cells": cells})
            spans.append(span)
        return spans

    def find_pages(self, start: int, end: int) -> list[int]:
        return sorted(
            {
                block.span.page
                for block in self.find_blocks(start, end)
                if block.span.page is not None
            }
        )

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


# Sections of a transcript: the blocks under one heading path.

MIN_REACH_PAGES = 3
_HEADING_MARKS = re.compile(r"^#{1,6}\s++|(?<!\s)\s++#++\s*+$")


@dataclass(frozen=True, slots=True)
class DocumentSection:
    """A section's body, with all headings since the previous section's body."""

    path: tuple[str, ...]
    headings: tuple[Block, ...]
    body: tuple[Block, ...]

    @property
    def start(self) -> int:
        return (self.headings or self.body)[0].span.char_start

    @property
    def end(self) -> int:
        return (self.body or self.headings)[-1].span.char_end

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks to cut chunks from: the body, or the headings if the section has none."""
        return self.body or self.headings


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    name: str
    page: int | None
    is_first: bool
    """True for the document's title, which applies to its end."""


def split_sections(transcript: Transcript) -> list[DocumentSection]:
    sections: list[DocumentSection] = []
    path: list[_Heading] = []
    headings: list[Block] = []
    reach_pages = _compute_reach_pages(transcript.blocks)
    for block, run in _split_runs(transcript.blocks, reach_pages):
        if block.kind == "heading":
            level = block.level or 1
            current_heading = _Heading(
                level,
                extract_heading_text(transcript.markdown, block),
                block.span.page,
                is_first=not sections and not headings,
            )
            path = [ancestor for ancestor in path if ancestor.level < level] + [current_heading]
            headings.append(block)
        else:
            path = [
                ancestor
                for ancestor in path
                if ancestor.is_first or _is_in_reach(ancestor.page, block.span.page, reach_pages)
            ]
            sections.append(
                DocumentSection(
                    tuple(ancestor.name for ancestor in path), tuple(headings), tuple(run)
                )
            )
            headings = []
    if headings:
        sections.append(
            DocumentSection(tuple(ancestor.name for ancestor in path), tuple(headings), ())
        )
    return sections


def _compute_reach_pages(blocks: Sequence[Block]) -> int:
    """Return for how many pages a heading applies.

    It is twice the median distance between headings, at least three pages.

    Headings of paged documents are guessed from their style. Without a limit, one missed heading
    would leave everything after it under the previous one.
    """
    pages = sorted(
        {
            block.span.page
            for block in blocks
            if block.kind == "heading" and block.span.page is not None
        }
    )
    gaps = [next_page - previous_page for previous_page, next_page in pairwise(pages)]
    return max(MIN_REACH_PAGES, 2 * round(median(gaps))) if gaps else sys.maxsize


def _is_in_reach(heading_page: int | None, page: int | None, reach_pages: int) -> bool:
    return heading_page is None or page is None or page - heading_page <= reach_pages


def _split_runs(blocks: Sequence[Block], reach_pages: int) -> Iterator[tuple[Block, list[Block]]]:
    """Yield each heading alone and other blocks in runs, which end where a heading's reach does."""
    run: list[Block] = []
    heading_page: int | None = None
    for block in blocks:
        is_reach_end = (
            bool(run)
            and _is_in_reach(heading_page, run[-1].span.page, reach_pages)
            and not _is_in_reach(heading_page, block.span.page, reach_pages)
        )
        if run and (block.kind == "heading" or is_reach_end):
            yield run[0], run
            run = []
        if block.kind == "heading":
            yield block, [block]
            heading_page = block.span.page
        else:
            run.append(block)
    if run:
        yield run[0], run


def extract_heading_text(markdown: str, block: Block) -> str:
    return " ".join(
        _HEADING_MARKS.sub("", markdown[block.span.char_start : block.span.char_end]).split()
    )
