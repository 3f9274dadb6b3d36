"""Hyphens at line ends: part of the word, or only of its line.

The layout keeps an undecided hyphen as `UNDECIDED_HYPHEN`; the whole document's words decide.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from engines.layout.text_blocks import UNDECIDED_HYPHEN

_LETTERS = r"[^\W\d_]+"
_WORD = re.compile(rf"{_LETTERS}(?:[-\u2010\u2011{UNDECIDED_HYPHEN}]{_LETTERS})*")
_TENS = frozenset(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])
_UNITS = re.compile(
    r"(?:one|two|three|four|five|six|seven|eight|nine|first|second|third)\b|\w+th\b"
)
_COMPOUND_STARTS = frozenset(
    """best cross double early fixed four five full half high large late long low multiple near
    open quasi second self short single small third three twenty two upper well whole year
    zero""".split()  # noqa: SIM905
)
"""First parts of words, measured in half of six collections of texts to have a hyphen after them
at least twice as often as not. In the other half they and `_MIN_PART` keep 26 % of the hyphens for
which a document has no other evidence, and 0.06 % of those that only the line needs."""
_MIN_PART = 4


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts, without those that a line's end divides."""
    words = Counter[str]()
    for text in texts:
        for word in _WORD.findall(text):
            if UNDECIDED_HYPHEN not in word:
                words[word.lower().replace("\u2010", "-").replace("\u2011", "-")] += 1
    return words


def resolve_hyphens(text: str, words: Counter[str]) -> str:
    """Drop each undecided hyphen, or keep it where the document or the parts speak for it."""
    if UNDECIDED_HYPHEN not in text:
        return text
    resolved = _WORD.sub(lambda match: _resolve_word(match[0], words), text)
    return resolved.replace(UNDECIDED_HYPHEN, "-")


def _resolve_word(word: str, words: Counter[str]) -> str:
    while UNDECIDED_HYPHEN in word:
        left, right = word.split(UNDECIDED_HYPHEN, 1)
        following = re.split(rf"[-\u2010\u2011{UNDECIDED_HYPHEN}]", right)[0]
        word = f"{left}-{right}" if _is_kept(left, following, words) else f"{left}{right}"
    return word


def _is_kept(left: str, right: str, words: Counter[str]) -> bool:
    left, right = left.lower(), right.lower()
    joined, hyphenated = words[left + right], words[f"{left}-{right}"]
    if joined != hyphenated:
        return hyphenated > joined
    if left in _COMPOUND_STARTS or (left in _TENS and _UNITS.fullmatch(right)):
        return True
    return min(len(left), len(right)) >= _MIN_PART and bool(words[left] and words[right])
