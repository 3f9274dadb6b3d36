"""The smallest parts that a block may be cut into, and how strong the boundary before each is."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from engines.chunk.tokens import estimate
from engines.sentences import RuleSentences
from schemas.values import Block

_WORD = re.compile(r"\S+\s*|\s+")
_LONGEST_WORD = 400
WIDEST_ROW = 15_000
"""Tokens beyond which a table's row is cut after all: no event, and no index of words, would hold it whole."""
_SENTENCES = RuleSentences()


class Rank(IntEnum):
    """Boundaries from the weakest to the strongest: the weakest are given up first."""

    WORD = 0
    SENTENCE = 1
    LINE = 2
    BLOCK = 3


@dataclass(frozen=True, slots=True)
class Atom:
    start: int
    end: int
    tokens: int
    rank: Rank
    """of the boundary before it"""
    mark: int
    """a hash of its own words: decides between boundaries of one rank, and depends on nothing else"""


def atoms(markdown: str, block: Block, limit: int) -> Iterator[Atom]:
    """In order and without gaps. Only the words of a sentence, line or item over `limit` tokens come apart, and those of a table's row over `WIDEST_ROW`."""
    rank = Rank.BLOCK
    for start, end, inner in _pieces(markdown, block):
        text = markdown[start:end]
        tokens = estimate(text)
        if tokens > (WIDEST_ROW if inner is None else limit):
            for atom in _smaller(markdown, start, end, inner or Rank.WORD, limit):
                yield Atom(atom.start, atom.end, atom.tokens, rank if atom.start == start else atom.rank, atom.mark)
        else:
            yield Atom(start, end, tokens, rank, _mark(text))
        rank = Rank.SENTENCE if block.kind not in _BY_LINE else Rank.LINE


def is_blank(markdown: str, cut: Sequence[Atom]) -> bool:
    """A cut of white space alone, as between two lines of code that fill a chunk each: nothing to find, and nothing to read."""
    return markdown[cut[0].start : cut[-1].end].isspace()


_BY_LINE = frozenset({"table", "list", "code"})


def _pieces(markdown: str, block: Block) -> Iterator[tuple[int, int, Rank | None]]:
    """Sentences of prose, items of lists, lines of code, rows of tables (the header with the first one); and what they may be cut at."""
    start, end = block.span.char_start, block.span.char_end
    match block.kind:
        case "table":
            yield from ((a, b, None) for a, b in _lines(markdown, start, end, keep_until=block.header_end))
        case "list":
            yield from ((a, b, Rank.SENTENCE) for a, b in _items(markdown, start, end))
        case "code" | "formula":
            yield from ((a, b, Rank.WORD) for a, b in _lines(markdown, start, end))
        case _:
            yield from ((start + a, start + b, Rank.WORD) for a, b in _SENTENCES.split(markdown[start:end]))


def _lines(markdown: str, start: int, end: int, keep_until: int | None = None) -> Iterator[tuple[int, int]]:
    """Lines with their line break; everything up to the first line after `keep_until` is one."""
    at = start
    if keep_until is not None:
        at = (markdown.find("\n", keep_until + 1, end) + 1 if keep_until < end else 0) or end
        yield start, at
    while at < end:
        after = markdown.find("\n", at, end) + 1 or end
        yield at, after
        at = after


_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\(?\w{1,5}[.)])[ \t]")


def _items(markdown: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Items with the lines that continue them."""
    begun = start
    for line, after in _lines(markdown, start, end):
        if line > begun and _ITEM.match(markdown, line, after):
            yield begun, line
            begun = line
    yield begun, end


def _smaller(markdown: str, start: int, end: int, inner: Rank, limit: int) -> Iterator[Atom]:
    if inner == Rank.SENTENCE:
        for a, b in _SENTENCES.split(markdown[start:end]):
            text = markdown[start + a : start + b]
            if estimate(text) > limit:
                yield from _smaller(markdown, start + a, start + b, Rank.WORD, limit)
            else:
                yield Atom(start + a, start + b, estimate(text), Rank.SENTENCE, _mark(text))
        return
    for word in _WORD.finditer(markdown, start, end):
        for a in range(word.start(), word.end(), _LONGEST_WORD):
            b = min(a + _LONGEST_WORD, word.end())
            yield Atom(a, b, estimate(markdown[a:b]), Rank.WORD, _mark(markdown[a:b]))


def _mark(text: str) -> int:
    return zlib.crc32(" ".join(text.split()).encode(errors="replace"))
