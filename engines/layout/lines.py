"""Rows that are no table: paragraphs, headings, lists and code."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engines.layout.runs import BULLET, Row, Run, bounds
from schemas.values import BlockKind

_ITEM = re.compile(rf"(?:{BULLET.pattern})\s+(?=\S)|(?:\(?(?:\d{{1,3}}|[a-zA-Z]|[ivxIVX]{{1,5}})[.)])\s+(?=\S)")
_NUMBERED = re.compile(r"(?:(?:chapter|section|cap[ií]tulo|se[cç][aã]o|part|parte)\s+\S+|\d{1,2}(?:\.\d{1,2}){0,4}\.?\s+\D)", re.I)
_ARTICLE = re.compile(r"(?:[IVXLC]{1,7}|I?ll?)\s*[-–—]\s?\S|§|(?:Art|Artigo|Article|Section|Cl[aá]usula|Par[aá]grafo)\b\.?\s+\S+")
_CAPTION = re.compile(r"(?:fig(?:ure|ura)?\.?|table|tab\.|tabela|quadro|gr[aá]fico|chart|exhibit)\s*\d+[a-z]?\s*[.:–—|-]", re.I)
_ENDS = (".", "!", "?", ":", ";", ",", "…")
_NUMBER_ALONE = re.compile(r"[-–—\s]*\d{1,4}[-–—\s]*")
_LONGEST_HEADING = 160
_RUNNING_ON = 2.8
"""Letter heights from line to line within which a sentence may run on, also in double-spaced text."""


@dataclass(slots=True)
class Line:
    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool
    mono: bool
    runs: list[Run]

    @staticmethod
    def of(row: Row) -> Line:
        x0, y0, x1, y1 = bounds(row.runs)
        widest = max(row.runs, key=lambda run: run.width)
        runs = row.runs
        return Line(row.text, x0, y0, x1, y1, widest.size, all(run.bold for run in runs), all(run.mono for run in runs), runs)


@dataclass(slots=True)
class Text:
    """Lines that make one block."""

    kind: BlockKind
    lines: list[Line]
    text: str


@dataclass(frozen=True, slots=True)
class Measure:
    """What is usual in a region: letter height of the body, edges, distance from line to line."""

    body: float
    left: float
    right: float
    pitch: float
    styled: bool
    """False for OCR, where nothing is known of fonts and heights are rough."""


def measure(lines: Sequence[Line], body: float, styled: bool) -> Measure:
    steps = [below.y0 - above.y0 for above, below in pairwise(lines) if 0 < below.y0 - above.y0 < 3 * body]
    pitch = statistics.median(steps) if steps else 1.3 * body
    return Measure(body, min(line.x0 for line in lines), max(line.x1 for line in lines), pitch, styled)


def texts(lines: Sequence[Line], usual: Measure) -> Iterator[Text]:
    for group in _groups(lines, usual):
        yield _text(group, usual)


def _groups(lines: Sequence[Line], usual: Measure) -> Iterator[list[Line]]:
    group: list[Line] = []
    for line in lines:
        if group and _breaks(group, line, usual):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _breaks(group: Sequence[Line], line: Line, usual: Measure) -> bool:
    """True where a new block begins with `line`."""
    last = group[-1]
    if last.mono and line.mono and usual.styled:
        return line.y0 - last.y0 > 4 * usual.pitch
    different = abs(line.size - last.size) > (0.08 if usual.styled else 0.3) * max(line.size, last.size)
    if different or line.bold != last.bold or line.mono != last.mono:
        return not (_ITEM.match(group[0].text) and not different and not line.bold)
    if _NUMBER_ALONE.fullmatch(line.text) or _NUMBER_ALONE.fullmatch(last.text):
        return True
    if line.text[:1].islower() and not last.text.endswith((".", "!", "?", ":")) and line.y0 - last.y0 < _RUNNING_ON * usual.body:
        return False
    if line.y0 - last.y0 > max(1.45 * usual.pitch, last.y1 - last.y0 + 0.75 * usual.body):
        return True
    if _ITEM.match(line.text) or (_ARTICLE.match(line.text) and last.x1 < usual.right - 2 * usual.body) or _centred(last, usual) != _centred(line, usual):
        return True
    return _paragraph_ends(group, line, usual)


def _paragraph_ends(group: Sequence[Line], line: Line, usual: Measure) -> bool:
    last = group[-1]
    width = usual.right - usual.left
    indented = line.x0 - last.x0 > 0.8 * usual.body and line.x0 - usual.left > 0.8 * usual.body
    if indented and not _ITEM.match(group[0].text) and len(group) > 1:
        return True
    short = usual.right - last.x1 > 0.18 * width
    if usual.right - last.x1 > 0.35 * width and line.text[:1].isupper() and not last.text.endswith((",", "-")):
        return True
    return short and last.text.endswith((".", "!", "?", ":", ";")) and (line.x0 <= usual.left + 1.2 * usual.body or indented) and not line.text[:1].islower()


def _centred(line: Line, usual: Measure) -> bool:
    """Well in from both edges, by about the same."""
    left, right = line.x0 - usual.left, usual.right - line.x1
    return min(left, right) > 3 * usual.body and abs(left - right) < 0.15 * (left + right) + usual.body


def _text(group: list[Line], usual: Measure) -> Text:
    text = joined([line.text for line in group])
    if usual.styled and all(line.mono for line in group) and (len(group) > 1 or _looks_like_code(group[0].text)):
        return Text("code", group, _code(group))
    if _CAPTION.match(text) and len(text) < 600:
        return Text("caption", group, text)
    if _is_heading(group, text, usual):
        return Text("heading", group, text)
    if (mark := _ITEM.match(text)) and any(letter.isalpha() for letter in text[mark.end() :]):
        return Text("list", group, _item(text, mark))
    return Text("paragraph", group, text)


def _is_heading(group: Sequence[Line], text: str, usual: Measure) -> bool:
    if len(group) > 3 or len(text) > _LONGEST_HEADING or not any(letter.isalpha() for letter in text) or BULLET.match(text):
        return False
    size = statistics.median(line.size for line in group)
    numbered = _NUMBERED.match(text) is not None
    if text.endswith((",", ";", ":")) or (text.endswith(".") and not numbered and size < 1.3 * usual.body):
        return False
    if not usual.styled:
        return size > (1.3 if not numbered else 1.1) * usual.body and len(group) <= 2 and len(text) < 100
    if size > 1.12 * usual.body or (numbered and size > 1.03 * usual.body):
        return True
    return all(line.bold for line in group) and len(group) <= 2 and size >= 0.95 * usual.body and len(text) <= 110


def _looks_like_code(text: str) -> bool:
    return len(text) > 12 and any(sign in text for sign in ("(", "=", "{", ";", "$ ", "--", "/"))


def _code(group: Sequence[Line]) -> str:
    """Lines with their indentation, from the width of a letter."""
    letters = [run.width / max(1, len(run.text)) for line in group for run in line.runs]
    letter = statistics.median(letters) or 1.0
    left = min(line.x0 for line in group)
    return "\n".join(" " * round((line.x0 - left) / letter) + _spaced(line, letter) for line in group)


def _spaced(line: Line, letter: float) -> str:
    words = [word for run in line.runs for word in run.words]
    text = words[0].text
    for before, after in pairwise(words):
        text += " " * max(1, round((after.x0 - before.x1) / letter)) + after.text
    return text


def _item(text: str, mark: re.Match[str]) -> str:
    sign = mark[0].strip()
    return f"{sign if sign[-1] in '.)' else '-'} {text[mark.end() :]}"


def joined(lines: Sequence[str]) -> str:
    """Lines of prose as one; a word divided at a line's end is put together."""
    text = ""
    for line in lines:
        if text.endswith(("\u00ad", "\ufffe", "\x02")) or (len(text) > 1 and text[-1] in "-\u2010" and text[-2].isalpha() and line[:1].islower()):
            text = text[:-1] + line
        else:
            text = f"{text} {line}" if text else line
    return text.replace("\u00ad", "").replace("\ufffe", "-").replace("\x02", "-")
