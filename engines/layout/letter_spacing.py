"""Words whose letters are set apart: "T O T A L" is TOTAL."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from engines.layout.text_runs import JOIN_GAP, LayoutWord, TextRun

_MIN_LETTERS = 4
# Where every letter is followed by a space that was typed, fewer may be a list.
_MIN_TYPED_LETTERS, _MAX_TYPED_LETTERS = 5, 15
_MIN_TEXT_SHARE = 0.7
_WORD_GAP = 1.6
"""Gaps between words, as a multiple of the usual gap between letters."""
_SPACED_WORDS = re.compile(r"(?<!\S)\S(?: {1,8}\S){4,200}(?!\S)")
_WIDE_GAP = re.compile(r" {2,}")


def join_spaced_letters(
    runs: Sequence[TextRun], has_typed_space: Callable[[int], bool]
) -> list[TextRun]:
    """Join the single letters of words whose letters are set apart.

    Each run is one word. `has_typed_space` tells whether the document has a space behind a run,
    rather than a gap.
    """
    joined: list[TextRun] = []
    for start, end in _find_sequences(runs):
        if end - start < _MIN_LETTERS:
            joined += runs[start:end]
            continue
        typed = [has_typed_space(i) for i in range(start, end - 1)]
        gaps = [right.x0 - left.x1 for left, right in pairwise(runs[start:end])]
        if any(typed) and not all(typed):
            breaks = typed
        else:
            usual_gap = statistics.median(gaps)
            breaks = [gap > _WORD_GAP * usual_gap for gap in gaps]
        words = list(_split_words(runs[start:end], breaks))
        if _is_spaced_text([word.text for word in words], is_typed=all(typed)):
            joined += words
        else:
            joined += runs[start:end]
    return joined


def join_spaced_line(line: str) -> str:
    """Join the letters of words that were typed apart, with wider gaps between words."""
    return _SPACED_WORDS.sub(_join_match, line)


def _join_match(match: re.Match[str]) -> str:
    words = [word.replace(" ", "") for word in _WIDE_GAP.split(match.group())]
    return " ".join(words) if _is_spaced_text(words, is_typed=True) else match.group()


def _find_sequences(runs: Sequence[TextRun]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of single letters side by side, and of what is between these."""
    start = 0
    for i in range(1, len(runs) + 1):
        if i == len(runs) or not _is_beside(runs[i - 1], runs[i]):
            yield start, i
            start = i


def _is_beside(left: TextRun, right: TextRun) -> bool:
    return (
        len(left.text) == len(right.text) == 1
        and abs(left.baseline - right.baseline) < 0.1 * left.size
        and abs(left.size - right.size) < 0.1 * left.size
        and 0 < right.x0 - left.x1 < 2 * JOIN_GAP * left.size
    )


def _split_words(runs: Sequence[TextRun], breaks: Sequence[bool]) -> Iterator[TextRun]:
    word = [runs[0]]
    for run, is_break in zip(runs[1:], breaks, strict=True):
        if is_break:
            yield _build_word(word)
            word = []
        word.append(run)
    yield _build_word(word)


def _build_word(runs: Sequence[TextRun]) -> TextRun:
    first = runs[0]
    text = "".join(run.text for run in runs)
    return TextRun(
        [LayoutWord(text, first.x0, runs[-1].x1)],
        first.x0,
        min(run.y0 for run in runs),
        runs[-1].x1,
        max(run.y1 for run in runs),
        first.size,
        first.bold,
        first.mono,
        baseline=first.baseline,
    )


def _is_spaced_text(words: Sequence[str], *, is_typed: bool) -> bool:
    """Tell text with letters set apart from lists such as "A B C D", rulings and figures."""
    text = "".join(words)
    letters = [char for char in text if char.isalpha()]
    if is_typed and (
        len(letters) < _MIN_TYPED_LETTERS
        or len(letters) < _MIN_TEXT_SHARE * len(text)
        # Without a wider gap it is one word, or a list of letters.
        or (len(words) == 1 and not (text.isupper() and len(text) <= _MAX_TYPED_LETTERS))
    ):
        return False
    if sum(map(str.isalnum, text)) < _MIN_TEXT_SHARE * len(text) or len(letters) < 2:
        return False
    is_listed = all(ord(right) - ord(left) == 1 for left, right in pairwise(letters))
    return not is_listed and max(map(len, words)) >= 3
