"""A tsvector as Postgres prints it, read only where it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

ENTRY = re.compile(r"(?<!\S)'((?:[^'\\]|''|\\\\)*+)':([\d,ABCD]+)")


class Positions(Mapping[str, Sequence[int]]):
    """Lexeme → its positions. A question asks for a handful of a hundred lexemes in each of hundreds of chunks, so nothing is parsed in advance."""

    __slots__ = ("_words",)

    def __init__(self, words: str) -> None:
        self._words = f" {words}"

    def __getitem__(self, lexeme: str) -> Sequence[int]:
        quoted = lexeme.replace("\\", "\\\\").replace("'", "''")
        entry = f" '{quoted}':"
        found = self._words.find(entry)
        if found < 0:
            raise KeyError(lexeme)
        begins = found + len(entry)
        ends = self._words.find(" ", begins)
        return _numbers(self._words[begins : ends if ends >= 0 else None])

    def __iter__(self) -> Iterator[str]:
        return (match[1].replace("''", "'").replace("\\\\", "\\") for match in ENTRY.finditer(self._words))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _numbers(printed: str) -> list[int]:
    numbers = printed.split(",")
    try:
        return list(map(int, numbers))
    except ValueError:
        return [int(number.rstrip("ABCD")) for number in numbers]
