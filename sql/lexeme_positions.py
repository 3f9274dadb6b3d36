"""Read lexeme positions from the text form of a tsvector."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

ENTRY_PATTERN = re.compile(r"(?<!\S)'((?:[^'\\]|''|\\\\)*+)':([\d,ABCD]+)")


class LexemePositions(Mapping[str, Sequence[int]]):
    """Lexeme → positions, parsed lazily.

    A query needs a few of the hundred lexemes in each of hundreds of chunks, so nothing is parsed
    in advance.
    """

    __slots__ = ("_words",)

    def __init__(self, words: str) -> None:
        self._words = f" {words}"

    def __getitem__(self, lexeme: str) -> Sequence[int]:
        quoted = lexeme.replace("\\", "\\\\").replace("'", "''")
        entry = f" '{quoted}':"
        start = self._words.find(entry)
        if start < 0:
            raise KeyError(lexeme)
        value_start = start + len(entry)
        value_end = self._words.find(" ", value_start)
        return _parse_positions(self._words[value_start : value_end if value_end >= 0 else None])

    def __iter__(self) -> Iterator[str]:
        return (
            match[1].replace("''", "'").replace("\\\\", "\\")
            for match in ENTRY_PATTERN.finditer(self._words)
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _parse_positions(printed: str) -> list[int]:
    numbers = printed.split(",")
    try:
        return list(map(int, numbers))
    except ValueError:
        return [int(number.rstrip("ABCD")) for number in numbers]
