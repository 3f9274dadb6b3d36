"""Sections of a transcript: the blocks under one heading path."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from schemas.values import Block, Transcript

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
