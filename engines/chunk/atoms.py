"""Atoms: the smallest parts of a block, each with the rank of the boundary before it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from engines.language import estimate_tokens, find_sentences
from schemas.values import Block

_WORD = re.compile(r"\S+\s*|\s+")
_MAX_WORD_CHARACTERS = 400
MAX_ROW_TOKENS = 15_000
"""Longer table rows are split: they would exceed the size of an event and of the word index."""


class BoundaryRank(IntEnum):
    """Strength of a boundary; packing removes the weakest first."""

    WORD = 0
    SENTENCE = 1
    LINE = 2
    BLOCK = 3


@dataclass(frozen=True, slots=True)
class Atom:
    start: int
    end: int
    tokens: int
    rank: BoundaryRank
    """Rank of the boundary before the atom."""
    boundary_hash: int
    """Hash of the atom's own words only; orders boundaries of one rank independently of their
    position."""


def split_atoms(markdown: str, block: Block, limit: int) -> Iterator[Atom]:
    """Yield the atoms of a block in order and without gaps.

    Sentences, lines and items are split into words only above `limit` tokens, table rows only above
    MAX_ROW_TOKENS.
    """
    rank = BoundaryRank.BLOCK
    for start, end, inner_rank in _split_block(markdown, block):
        text = markdown[start:end]
        tokens = estimate_tokens(text)
        if tokens > (MAX_ROW_TOKENS if inner_rank is None else limit):
            for atom in _split_oversized(
                markdown, start, end, inner_rank or BoundaryRank.WORD, limit
            ):
                yield Atom(
                    atom.start,
                    atom.end,
                    atom.tokens,
                    # The first piece keeps the boundary before the whole part.
                    rank if atom.start == start else atom.rank,
                    atom.boundary_hash,
                )
        else:
            yield Atom(start, end, tokens, rank, _hash_words(text))
        rank = BoundaryRank.SENTENCE if block.kind not in _LINE_KINDS else BoundaryRank.LINE


def is_blank(markdown: str, cut: Sequence[Atom]) -> bool:
    """Return whether a cut is white space only, as between two long lines of code."""
    return markdown[cut[0].start : cut[-1].end].isspace()


_LINE_KINDS = frozenset({"table", "list", "code"})


def _split_block(markdown: str, block: Block) -> Iterator[tuple[int, int, BoundaryRank | None]]:
    """Yield sentences, list items, lines of code or table rows (the header with the first row).

    The third element is the rank at which an oversized part is split; None for table rows.
    """
    start, end = block.span.char_start, block.span.char_end
    match block.kind:
        case "table":
            yield from (
                (*row, None)
                for row in _split_lines(markdown, start, end, keep_until=block.header_end)
            )
        case "list":
            yield from (
                (*item, BoundaryRank.SENTENCE) for item in _split_items(markdown, start, end)
            )
        case "code" | "formula":
            yield from ((*line, BoundaryRank.WORD) for line in _split_lines(markdown, start, end))
        case _:
            yield from (
                (*sentence, BoundaryRank.WORD)
                for sentence in _split_sentences(markdown, start, end)
            )


def _split_sentences(markdown: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return (
        (start + sentence_start, start + sentence_end)
        for sentence_start, sentence_end in find_sentences(markdown[start:end])
    )


def _split_lines(
    markdown: str, start: int, end: int, keep_until: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield lines with their line breaks.

    Everything up to the end of the line after `keep_until` is one part.
    """
    line_start = start
    if keep_until is not None:
        line_start = (
            markdown.find("\n", keep_until + 1, end) + 1 if keep_until < end else 0
        ) or end
        yield start, line_start
    while line_start < end:
        line_end = markdown.find("\n", line_start, end) + 1 or end
        yield line_start, line_end
        line_start = line_end


_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\(?\w{1,5}[.)])[ \t]")


def _split_items(markdown: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield list items with their continuation lines."""
    item_start = start
    for line_start, line_end in _split_lines(markdown, start, end):
        if line_start > item_start and _ITEM.match(markdown, line_start, line_end):
            yield item_start, line_start
            item_start = line_start
    yield item_start, end


def _split_oversized(
    markdown: str, start: int, end: int, inner_rank: BoundaryRank, limit: int
) -> Iterator[Atom]:
    if inner_rank == BoundaryRank.SENTENCE:
        for sentence_start, sentence_end in _split_sentences(markdown, start, end):
            text = markdown[sentence_start:sentence_end]
            if estimate_tokens(text) > limit:
                yield from _split_oversized(
                    markdown, sentence_start, sentence_end, BoundaryRank.WORD, limit
                )
            else:
                yield Atom(
                    sentence_start,
                    sentence_end,
                    estimate_tokens(text),
                    BoundaryRank.SENTENCE,
                    _hash_words(text),
                )
        return
    for word in _WORD.finditer(markdown, start, end):
        # Encoded data may be one endless word, and every atom must fit into a chunk.
        for part_start in range(word.start(), word.end(), _MAX_WORD_CHARACTERS):
            part_end = min(part_start + _MAX_WORD_CHARACTERS, word.end())
            text = markdown[part_start:part_end]
            yield Atom(
                part_start, part_end, estimate_tokens(text), BoundaryRank.WORD, _hash_words(text)
            )


def _hash_words(text: str) -> int:
    # Without white space, so that reflowed text keeps its boundaries.
    return zlib.crc32(" ".join(text.split()).encode(errors="replace"))


def find_trimmed_end(markdown: str, cut: Sequence[Atom]) -> int:
    """Return the end of a cut without trailing white space."""
    start, end = cut[0].start, cut[-1].end
    return start + len(markdown[start:end].rstrip())
