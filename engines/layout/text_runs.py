"""Text runs with boxes, the input of the layout builder.

Boxes are in points or pixels of an upright page, with the origin at the top left.

A run is text that belongs together on one line: neighboring words of a PDF's text layer, or one
line box of an OCR engine.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from schemas.values import Box

JOIN_GAP = 0.85
"""Runs on a row are joined if they are closer than this many letter heights."""

BULLET = re.compile(r"[•◦▪▫■□●○‣⁃∙·➢➔✓✔❖♦►▶*–—-]|o(?=$)|[\uf0a7\uf0b7\uf0d8\uf076]")

_WORD_START = re.compile(r"[\"'“‘«(\[]?[^\W\d_]")
_NUMBER = re.compile(
    r"\d{1,2}(?:\.\d{1,2})+\.?|(?:\d{1,3}|[A-Z]|[IVXLC]{1,6})[.)]|\(?[a-z0-9ivx]{1,4}\)|§+|Art\."
)


@dataclass(frozen=True, slots=True)
class LayoutWord:
    text: str
    x0: float
    x1: float


@dataclass(slots=True)
class TextRun:
    words: list[LayoutWord]
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool = False
    mono: bool = False
    table: list[list[str]] | None = None
    """Cells, if the run represents a whole ruled table."""
    baseline: float = 0.0
    """Where the letters stand; unknown for OCR."""

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words).replace("~~ ~~", " ")

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    def merge(self, other: TextRun) -> TextRun:
        wider_run = self if self.width >= other.width else other
        x0, y0, x1, y1 = compute_bounds((self, other))
        return TextRun(
            self.words + other.words, x0, y0, x1, y1, wider_run.size, wider_run.bold, wider_run.mono
        )


@dataclass(slots=True)
class LayoutRow:
    """Runs side by side, from left to right: a line of text, or cells of a table."""

    runs: list[TextRun]
    text: str = field(init=False)
    x0: float = field(init=False)
    y0: float = field(init=False)
    x1: float = field(init=False)
    y1: float = field(init=False)
    size: float = field(init=False)
    bold: bool = field(init=False)
    mono: bool = field(init=False)

    def __post_init__(self) -> None:
        self.text = " ".join(run.text for run in self.runs)
        self.x0, self.y0, self.x1, self.y1 = compute_bounds(self.runs)
        self.size = max(self.runs, key=lambda run: run.width).size
        self.bold = all(run.bold for run in self.runs)
        self.mono = all(run.mono for run in self.runs)


@dataclass(frozen=True, slots=True)
class LayoutPage:
    """Runs of one page.

    `to_page_box` converts a box from the runs' coordinates to shares of the page as displayed.
    `unit` is the number of points per unit, which makes sizes comparable between pages.
    """

    runs: Sequence[TextRun]
    to_page_box: Callable[[Box], Box]
    number: int | None = None
    unit: float = 1.0
    running_lines: list[list[TextRun]] = field(default_factory=list)
    """First and last lines that other pages repeat, which no sentence includes."""


def compute_bounds(runs: Iterable[TextRun]) -> Box:
    return merge_boxes((run.x0, run.y0, run.x1, run.y1) for run in runs)


def merge_boxes(boxes: Iterable[Sequence[float]]) -> Box:
    """Return the rectangle around all boxes."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def compute_body_height(runs: Iterable[TextRun]) -> float:
    """Return the letter height of most characters, rounded to half a unit."""
    weights: dict[float, int] = {}
    for run in runs:
        size = round(run.size * 2) / 2
        weights[size] = weights.get(size, 0) + sum(len(word.text) for word in run.words)
    return max(weights, key=lambda size: (weights[size], size)) if weights else 1.0


def group_rows(runs: Sequence[TextRun], gap: float = JOIN_GAP) -> list[LayoutRow]:
    """Group runs into rows from top to bottom.

    Join neighbors closer than `gap` letter heights and bullets with their text.
    """
    return [LayoutRow(_merge_neighbors(members, gap)) for members in group_lines(runs)]


def group_lines(runs: Sequence[TextRun]) -> list[list[TextRun]]:
    """Group runs into lines from top to bottom, each sorted from left to right."""
    line_groups: list[tuple[float, float, list[TextRun]]] = []
    for run in sorted(runs, key=lambda run: (run.middle, run.x0)):
        # The runs are sorted by height, so only the last three lines can match.
        for i in range(len(line_groups) - 1, max(-1, len(line_groups) - 4), -1):
            y0, y1, members = line_groups[i]
            if run.table or members[0].table:
                continue
            if min(run.y1, y1) - max(run.y0, y0) > 0.5 * min(run.y1 - run.y0, y1 - y0):
                members.append(run)
                # The largest run defines the line's extent; superscripts must not shift it.
                if run.size >= max(member.size for member in members):
                    line_groups[i] = (run.y0, run.y1, members)
                break
        else:
            line_groups.append((run.y0, run.y1, [run]))
    return [sorted(members, key=lambda run: run.x0) for _, _, members in line_groups]


_RUNNING_DIGITS = re.compile(r"\d+")
_MIN_RUNNING_PAGES = 3


def find_running_lines(pages: Sequence[LayoutPage]) -> None:
    """Fill the `running_lines` of pages: outermost lines that are equal but for their numbers."""
    places: dict[tuple[int, str], list[tuple[LayoutPage, list[TextRun]]]] = {}
    for page in pages:
        lines = group_lines(page.runs)
        # A page of one line has nothing else to read.
        for edge in (0, -1) if len(lines) > 1 else ():
            # Several runs may be the first row of a table that each page repeats.
            if len(lines[edge]) == 1 and not lines[edge][0].table:
                text = " ".join(run.text for run in lines[edge])
                key = edge, _RUNNING_DIGITS.sub("#", text.lower())
                places.setdefault(key, []).append((page, lines[edge]))
    for found in places.values():
        if len(found) >= max(_MIN_RUNNING_PAGES, len(pages) / 5):
            for page, line in found:
                page.running_lines.append(line)


def _merge_neighbors(members: list[TextRun], gap: float) -> list[TextRun]:
    merged: list[TextRun] = []
    for run in members:
        last = merged[-1] if merged else None
        if last and (
            run.x0 - last.x1 < gap * min(run.size, last.size)
            or (
                len(last.words) == 1
                and BULLET.fullmatch(last.words[0].text)
                and run.x0 - last.x1 < 5 * run.size
            )
        ):
            merged[-1] = last.merge(run)
        else:
            merged.append(run)
    if len(merged) == 2:
        number, text = merged
        # The number of a section or item is far from its text.
        if (
            len(number.words) == 1
            and text.x0 - number.x1 < 8 * text.size
            and _NUMBER.fullmatch(number.text)
            and _WORD_START.match(text.text)
        ):
            return [number.merge(text)]
    return merged


def compute_line_height(rows: Sequence[LayoutRow]) -> float:
    return statistics.median(row.y1 - row.y0 for row in rows) if rows else 1.0


# Words whose letters are set apart: "T O T A L" is TOTAL.

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
