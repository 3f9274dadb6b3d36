"""Text blocks outside tables: paragraphs, headings, captions, lists and code."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engines.layout.text_runs import BULLET, LayoutRow
from schemas.values import BlockKind

_ITEM = re.compile(
    rf"(?:{BULLET.pattern})\s+(?=\S)|(?:\(?(?:\d{{1,3}}|[a-zA-Z]|[ivxIVX]{{1,5}})[.)])\s+(?=\S)"
)
_NUMBERED = re.compile(
    r"(?:(?:chapter|section|cap[ií]tulo|se[cç][aã]o|part|parte)\s+\S+|"
    r"\d{1,2}(?:\.\d{1,2}){0,4}\.?\s+\D)",
    re.I,
)
_ARTICLE = re.compile(
    r"(?:[IVXLC]{1,7}|I?ll?)\s*[-–—]\s?\S|§|"
    r"(?:Art|Artigo|Article|Section|Cl[aá]usula|Par[aá]grafo)\b\.?\s+\S+"
)
_CAPTION = re.compile(
    r"(?:fig(?:ure|ura)?\.?|table|tab\.|tabela|quadro|gr[aá]fico|chart|exhibit)"
    r"\s*\d+[a-z]?\s*[.:–—|-]",
    re.I,
)
_CODE_SIGNS = ("(", "=", "{", ";", "$ ", "--", "/")
_CLOSING_PUNCTUATION = (".", "!", "?", ":", ";", ",", "…")
_BARE_NUMBER = re.compile(r"[-–—\s]*\d{1,4}[-–—\s]*")
_MAX_HEADING_CHARACTERS = 160
_LINE_HYPHENS = "-\u2010\u2011\u00ad\ufffe\x02"
# Portuguese and Polish repeat a hyphen of the word on the next line.
_REPEATED_HYPHEN = re.compile(r"[-\u2010\u2011][^\W\d_]{2}")
_SUSPENDED = re.compile(r"(?:and|or|to|und|oder|bis|e|ou|et|y|o)\b")
"""Words after the hyphen of a shortened word, as in "pre- and postwar"."""
_UNSPACED = re.compile(r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff65]")
"""Letters and signs of Chinese and Japanese, which have no spaces between words."""
UNDECIDED_HYPHEN = "\ufdd0"
"""A noncharacter, which no text contains."""
_MAX_CONTINUATION_PITCH = 2.8
"""Largest line distance in letter heights across which a sentence continues, including
double-spaced text."""


@dataclass(slots=True)
class TextBlock:
    kind: BlockKind
    lines: list[LayoutRow]
    text: str


@dataclass(frozen=True, slots=True)
class RegionMetrics:
    """Typical values of a region: body letter height, edges, and line distance (`pitch`)."""

    body_height: float
    left: float
    right: float
    pitch: float
    has_fonts: bool
    """False for OCR, where fonts are unknown and heights are rough."""


def measure_region(
    lines: Sequence[LayoutRow], body_height: float, has_fonts: bool
) -> RegionMetrics:
    line_steps = [
        lower_line.y0 - upper_line.y0
        for upper_line, lower_line in pairwise(lines)
        if 0 < lower_line.y0 - upper_line.y0 < 3 * body_height
    ]
    pitch = statistics.median(line_steps) if line_steps else 1.3 * body_height
    return RegionMetrics(
        body_height,
        min(line.x0 for line in lines),
        max(line.x1 for line in lines),
        pitch,
        has_fonts,
    )


def build_text_blocks(lines: Sequence[LayoutRow], metrics: RegionMetrics) -> Iterator[TextBlock]:
    for group in _group_lines(lines, metrics):
        yield _build_text_block(group, metrics)


def _group_lines(lines: Sequence[LayoutRow], metrics: RegionMetrics) -> Iterator[list[LayoutRow]]:
    group: list[LayoutRow] = []
    for line in lines:
        if group and _is_block_break(group, line, metrics):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _is_block_break(group: Sequence[LayoutRow], line: LayoutRow, metrics: RegionMetrics) -> bool:
    """Return whether `line` begins a new block.

    The order of the checks matters: the first that applies decides.
    """
    last = group[-1]
    if line.text.startswith("[^"):
        return True
    # Blank lines belong to code.
    if last.mono and line.mono and metrics.has_fonts:
        return line.y0 - last.y0 > 4 * metrics.pitch
    size_differs = abs(line.size - last.size) > (0.08 if metrics.has_fonts else 0.3) * max(
        line.size, last.size
    )
    # A change of style ends the block, except within a list item.
    if size_differs or line.bold != last.bold or line.mono != last.mono:
        return not (_ITEM.match(group[0].text) and not size_differs and not line.bold)
    if _BARE_NUMBER.fullmatch(line.text) or _BARE_NUMBER.fullmatch(last.text):
        return True
    # A sentence that continues does so even across a larger gap.
    if (
        (line.text[:1].islower() or is_hyphenated(last.text))
        and not last.text.endswith((".", "!", "?", ":"))
        and line.y0 - last.y0 < _MAX_CONTINUATION_PITCH * metrics.body_height
    ):
        return False
    if line.y0 - last.y0 > max(
        1.45 * metrics.pitch, last.y1 - last.y0 + 0.75 * metrics.body_height
    ):
        return True
    if (
        _ITEM.match(line.text)
        or (_ARTICLE.match(line.text) and last.x1 < metrics.right - 2 * metrics.body_height)
        or _is_centered(last, metrics) != _is_centered(line, metrics)
    ):
        return True
    return _is_paragraph_break(group, line, metrics)


def _is_paragraph_break(
    group: Sequence[LayoutRow], line: LayoutRow, metrics: RegionMetrics
) -> bool:
    last = group[-1]
    width = metrics.right - metrics.left
    is_indented = (
        line.x0 - last.x0 > 0.8 * metrics.body_height
        and line.x0 - metrics.left > 0.8 * metrics.body_height
    )
    if is_indented and not _ITEM.match(group[0].text) and len(group) > 1:
        return True
    is_short = metrics.right - last.x1 > 0.18 * width
    if (
        metrics.right - last.x1 > 0.35 * width
        and line.text[:1].isupper()
        and not last.text.endswith((",", "-"))
    ):
        return True
    return (
        is_short
        and last.text.endswith((".", "!", "?", ":", ";"))
        and (line.x0 <= metrics.left + 1.2 * metrics.body_height or is_indented)
        and not line.text[:1].islower()
    )


def _is_centered(line: LayoutRow, metrics: RegionMetrics) -> bool:
    """Return whether the line is far from both edges by about the same distance."""
    left, right = line.x0 - metrics.left, metrics.right - line.x1
    return (
        min(left, right) > 3 * metrics.body_height
        and abs(left - right) < 0.15 * (left + right) + metrics.body_height
    )


def _build_text_block(group: list[LayoutRow], metrics: RegionMetrics) -> TextBlock:
    text = join_lines([line.text for line in group])
    if (
        metrics.has_fonts
        and all(line.mono for line in group)
        and (len(group) > 1 or (len(text) > 12 and any(sign in text for sign in _CODE_SIGNS)))
    ):
        return TextBlock("code", group, _format_code(group))
    if _CAPTION.match(text) and len(text) < 600:
        return TextBlock("caption", group, text)
    if _is_heading(group, text, metrics):
        return TextBlock("heading", group, text)
    if (mark := _ITEM.match(text)) and any(letter.isalpha() for letter in text[mark.end() :]):
        marker = mark[0].strip() if mark[0].strip()[-1] in ".)" else "-"
        return TextBlock("list", group, f"{marker} {text[mark.end() :]}")
    return TextBlock("paragraph", group, text)


def _is_heading(group: Sequence[LayoutRow], text: str, metrics: RegionMetrics) -> bool:
    if (
        len(group) > 3
        or len(text) > _MAX_HEADING_CHARACTERS
        or not any(letter.isalpha() for letter in text)
        or BULLET.match(text)
    ):
        return False
    size = statistics.median(line.size for line in group)
    is_numbered = _NUMBERED.match(text) is not None
    if text.endswith((",", ";", ":")) or (
        text.endswith(".") and not is_numbered and size < 1.3 * metrics.body_height
    ):
        return False
    # OCR heights depend on the letters of a line, so a heading must stand out more.
    if not metrics.has_fonts:
        return (
            size > (1.3 if not is_numbered else 1.1) * metrics.body_height
            and len(group) <= 2
            and len(text) < 100
        )
    if size > 1.12 * metrics.body_height or (is_numbered and size > 1.03 * metrics.body_height):
        return True
    return (
        all(line.bold for line in group)
        and len(group) <= 2
        and size >= 0.95 * metrics.body_height
        and len(text) <= 110
    )


def _format_code(group: Sequence[LayoutRow]) -> str:
    """Format lines with their indentation and spacing in units of the median letter width."""
    letters = [run.width / max(1, len(run.text)) for line in group for run in line.runs]
    letter = statistics.median(letters) or 1.0
    left = min(line.x0 for line in group)
    code_lines = []
    for line in group:
        words = [word for run in line.runs for word in run.words]
        code_line = " " * round((line.x0 - left) / letter) + words[0].text
        for previous_word, next_word in pairwise(words):
            gap = next_word.x0 - previous_word.x1
            code_line += " " * max(1, round(gap / letter)) + next_word.text
        code_lines.append(code_line)
    return "\n".join(code_lines)


def join_lines(lines: Sequence[str]) -> str:
    """Join lines of prose, and words that are hyphenated at a line's end.

    Only the whole document can tell whether the hyphen between lowercase letters is part of the
    word; it becomes `UNDECIDED_HYPHEN`.
    """
    text = ""
    for line in lines:
        if is_hyphenated(text) and _REPEATED_HYPHEN.match(line):
            text += line[1:]
        elif is_hyphenated(text) and line[:1].isalnum() and not _SUSPENDED.match(line):
            is_decided = not text[-2].islower() or not line[0].islower()
            hyphen = "-" if is_decided else UNDECIDED_HYPHEN
            text = text[:-1] + ("" if text[-1] == "\u00ad" else hyphen) + line
        else:
            is_unspaced = _UNSPACED.match(line) and _UNSPACED.match(text[-1:])
            text = f"{text} {line}" if text and not is_unspaced else text + line
    return text.replace("\u00ad", "").replace("\ufffe", "-").replace("\x02", "-")


def is_hyphenated(text: str) -> bool:
    """Return whether a line ends within a word."""
    # pdfium emits U+FFFE or U+0002 for a hyphen at a line's end; U+00AD is a soft hyphen.
    return len(text) > 1 and text[-1] in _LINE_HYPHENS and text[-2].isalnum()
