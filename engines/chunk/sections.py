"""A transcript as sections: the blocks under one heading path."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from schemas.values import Block, Transcript

SHORTEST_REACH = 3
_MARKS = re.compile(r"^#{1,6}\s++|(?<!\s)\s++#++\s*+$")


@dataclass(frozen=True, slots=True)
class Section:
    """`headings` stand right before `body`; they are those that led here since the last section with a body."""

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
        """What its chunks are cut from: the body, or the headings where nothing follows them."""
        return self.body or self.headings


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    name: str
    page: int | None
    is_first: bool
    """The document's own title, which holds to the end."""


def sections(transcript: Transcript) -> list[Section]:
    found: list[Section] = []
    path: list[_Heading] = []
    headings: list[Block] = []
    reach = _reach(transcript.blocks)
    for block, run in _runs(transcript.blocks, reach):
        if block.kind == "heading":
            level = block.level or 1
            last = _Heading(level, heading(transcript.markdown, block), block.span.page, is_first=not found and not headings)
            path = [other for other in path if other.level < level] + [last]
            headings.append(block)
        else:
            path = [other for other in path if other.is_first or _holds(other.page, block.span.page, reach)]
            found.append(Section(tuple(other.name for other in path), tuple(headings), tuple(run)))
            headings = []
    if headings:
        found.append(Section(tuple(other.name for other in path), tuple(headings), ()))
    return found


def _reach(blocks: Sequence[Block]) -> int:
    """Return for how many pages a heading holds.

    Headings of pages are guessed from their looks, and a heading that was missed would leave everything after it under the last one found.
    So where headings stand close together, none holds for long: twice the usual distance, at least three pages.
    """
    pages = sorted({block.span.page for block in blocks if block.kind == "heading" and block.span.page is not None})
    gaps = [after - before for before, after in pairwise(pages)]
    return max(SHORTEST_REACH, 2 * round(median(gaps))) if gaps else sys.maxsize


def _holds(heading: int | None, page: int | None, reach: int) -> bool:
    return heading is None or page is None or page - heading <= reach


def _runs(blocks: Sequence[Block], reach: int) -> Iterator[tuple[Block, list[Block]]]:
    """Yield each heading by itself, other blocks in runs that end where the last heading's reach does."""
    run: list[Block] = []
    last: int | None = None
    for block in blocks:
        ends = bool(run) and _holds(last, run[-1].span.page, reach) and not _holds(last, block.span.page, reach)
        if run and (block.kind == "heading" or ends):
            yield run[0], run
            run = []
        if block.kind == "heading":
            yield block, [block]
            last = block.span.page
        else:
            run.append(block)
    if run:
        yield run[0], run


def heading(markdown: str, block: Block) -> str:
    return " ".join(_MARKS.sub("", markdown[block.span.char_start : block.span.char_end]).split())
