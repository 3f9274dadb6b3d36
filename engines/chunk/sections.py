"""A transcript as sections: the blocks under one heading path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.values import Block, Transcript

_MARKS = re.compile(r"^#{1,6}\s+|\s+#+\s*$")


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


def sections(transcript: Transcript) -> list[Section]:
    found: list[Section] = []
    path: list[tuple[int, str]] = []
    headings: list[Block] = []
    for block, run in _runs(transcript.blocks):
        if block.kind == "heading":
            level = block.level or 1
            path = [(other, name) for other, name in path if other < level] + [(level, heading(transcript.markdown, block))]
            headings.append(block)
        else:
            found.append(Section(tuple(name for _, name in path), tuple(headings), tuple(run)))
            headings = []
    if headings:
        found.append(Section(tuple(name for _, name in path), tuple(headings), ()))
    return found


def _runs(blocks: Sequence[Block]) -> Iterator[tuple[Block, list[Block]]]:
    """Each heading by itself, other blocks in unbroken runs."""
    run: list[Block] = []
    for block in blocks:
        if block.kind == "heading":
            if run:
                yield run[0], run
            yield block, [block]
            run = []
        else:
            run.append(block)
    if run:
        yield run[0], run


def heading(markdown: str, block: Block) -> str:
    return " ".join(_MARKS.sub("", markdown[block.span.char_start : block.span.char_end]).split())
