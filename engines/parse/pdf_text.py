"""A PDF page's text layer as runs: letters to words to runs, in the page as people see it.

Letters have loose boxes (the font's full height): tight ones make "1 1 .8" of a number.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pypdfium2 as pdfium
import pypdfium2.raw as c

from engines.layout import Page, Run, Word
from engines.layout.grids import framed
from engines.layout.runs import JOIN_GAP
from engines.parse.pdf_rules import rules_of
from schemas.values import Box

_MONO = re.compile(r"mono|courier|consol|typewriter|menlo|inconsolata|cmtt|lmtt|fixed|sourcecode", re.I)
_BOLD = re.compile(r"bold|black|heavy|semibold|demi(?!light)|cmbx|-bd|[-_]medi(?!um)", re.I)
_FIXED_PITCH, _FORCE_BOLD = 1, 1 << 18


@dataclass(slots=True)
class _Glyphs:
    """A word under way: its letters and its box in page space (origin at the bottom left)."""

    first: int
    text: str
    left: float
    bottom: float
    right: float
    top: float


@dataclass(frozen=True, slots=True)
class _Face:
    size: float
    bold: bool
    mono: bool
    turn: int
    """quarter turns anticlockwise that the letters stand at"""


def page_text(page: pdfium.PdfPage, text: pdfium.PdfTextPage, number: int) -> tuple[Page, list[str]]:
    """The page's runs, upright; and texts that stand at another angle than most (stamps along the edge)."""
    words = [(word, _face(text, word.first)) for word in _words(text)]
    turns = Counter[int]()
    for word, face in words:
        turns[face.turn] += len(word.text)
    turn = turns.most_common(1)[0][0] if turns else 0
    view = _View.of(page, turn)
    upright = [_run(view, word, face) for word, face in words if face.turn == turn]
    rules = [view.upright(*rule) for rule in rules_of(page)] if upright else []
    stamps = " ".join(word.text for word, face in words if face.turn != turn)
    return Page(framed(_joined(upright), rules), view.share, number), [stamps] if stamps else []


def _words(text: pdfium.PdfTextPage) -> list[_Glyphs]:
    count = text.count_chars()
    letters = text.get_text_range(0, count) if count else ""
    if len(letters) != count:
        letters = [chr(c.FPDFText_GetUnicode(text.raw, i)) for i in range(count)]
    rectangle = c.FS_RECTF()
    reference, box, raw = ctypes.byref(rectangle), c.FPDFText_GetLooseCharBox, text.raw
    words: list[_Glyphs] = []
    word: _Glyphs | None = None
    for i, letter in enumerate(letters):
        if letter.isspace() or letter == "\x00":
            word = None
            continue
        box(raw, i, reference)
        left, bottom, right, top = rectangle.left, rectangle.bottom, rectangle.right, rectangle.top
        if word is not None and bottom == word.bottom and 0.0 <= left - word.right < 0.2 * (top - bottom):
            word.text += letter
            word.right = right
            word.top = max(word.top, top)
        elif word is not None and _follows(word, left, bottom, right, top):
            word.text += letter
            word.left, word.right = min(word.left, left), max(word.right, right)
            word.bottom, word.top = min(word.bottom, bottom), max(word.top, top)
        else:
            word = _Glyphs(i, letter, left, bottom, right, top)
            words.append(word)
    return words


def _follows(word: _Glyphs, left: float, bottom: float, right: float, top: float) -> bool:
    """True where a letter touches the word, along the line or, for turned text, across it."""
    height = min(word.top - word.bottom, top - bottom) or 1.0
    width = min(word.right - word.left, right - left) or 1.0
    apart = max(left - word.right, word.left - right)
    beside = min(word.top, top) - max(word.bottom, bottom) > 0.3 * height and -1.5 * height < apart < 0.3 * height
    above = min(word.right, right) - max(word.left, left) > 0.6 * width and max(bottom - word.top, word.bottom - top) < 0.3 * width
    return beside or (above and not min(word.top, top) - max(word.bottom, bottom) > 0.3 * height)


@lru_cache(maxsize=1024)
def _by_name(font: bytes) -> tuple[bool, bool]:
    """Bold and monospaced, as far as the font's name says."""
    name = font.decode("latin-1")
    return bool(_BOLD.search(name)), bool(_MONO.search(name))


def _face(text: pdfium.PdfTextPage, i: int) -> _Face:
    raw = text.raw
    flags, buffer = ctypes.c_int(), ctypes.create_string_buffer(128)
    c.FPDFText_GetFontInfo(raw, i, buffer, 128, ctypes.byref(flags))
    named_bold, named_mono = _by_name(buffer.value)
    matrix = c.FS_MATRIX()
    c.FPDFText_GetMatrix(raw, i, ctypes.byref(matrix))
    size = c.FPDFText_GetFontSize(raw, i) * math.hypot(matrix.c, matrix.d)
    bold = named_bold or bool(flags.value & _FORCE_BOLD) or c.FPDFText_GetFontWeight(raw, i) >= 600
    mono = named_mono or bool(flags.value & _FIXED_PITCH)
    return _Face(size, bold, mono, round(-c.FPDFText_GetCharAngle(raw, i) / (math.pi / 2)) % 4)


@dataclass(frozen=True, slots=True)
class _View:
    """Between page space and the page with its text upright."""

    to_page: Callable[[float, float], tuple[float, float]]
    """page space to shares of the page as shown, origin at the top left"""
    width: float
    height: float
    turn: int

    @staticmethod
    def of(page: pdfium.PdfPage, turn: int) -> _View:
        left, bottom, right, top = page.get_bbox()
        across, up = max(right - left, 1e-6), max(top - bottom, 1e-6)
        rotation = page.get_rotation() // 90 % 4

        def shares(x: float, y: float) -> tuple[float, float]:
            return _turned((x - left) / across, (top - y) / up, rotation)

        width, height = page.get_size()
        return _View(shares, width, height, (turn - rotation) % 4)

    def upright(self, left: float, bottom: float, right: float, top: float) -> Box:
        """A box of page space, in points, with the text upright."""
        one = _turned(*self.to_page(left, top), self.turn)
        other = _turned(*self.to_page(right, bottom), self.turn)
        width, height = (self.width, self.height) if self.turn % 2 == 0 else (self.height, self.width)
        xs, ys = sorted((one[0], other[0])), sorted((one[1], other[1]))
        return xs[0] * width, ys[0] * height, xs[1] * width, ys[1] * height

    def share(self, box: Box) -> Box:
        """Upright points back to shares of the page as shown."""
        width, height = (self.width, self.height) if self.turn % 2 == 0 else (self.height, self.width)
        one = _turned(box[0] / width, box[1] / height, -self.turn % 4)
        other = _turned(box[2] / width, box[3] / height, -self.turn % 4)
        xs, ys = sorted((one[0], other[0])), sorted((one[1], other[1]))
        x0, y0, x1, y1 = (round(min(max(value, 0.0), 1.0), 4) for value in (xs[0], ys[0], xs[1], ys[1]))
        return x0, y0, x1, y1


def _turned(x: float, y: float, quarters: int) -> tuple[float, float]:
    """A point of the unit square after clockwise quarter turns of the square, origin at the top left."""
    for _ in range(quarters):
        x, y = 1 - y, x
    return x, y


def _run(view: _View, word: _Glyphs, face: _Face) -> Run:
    x0, y0, x1, y1 = view.upright(word.left, word.bottom, word.right, word.top)
    size = face.size or (y1 - y0)
    if y1 - y0 > 1.6 * size:
        middle = (y0 + y1) / 2
        y0, y1 = middle - 0.6 * size, middle + 0.6 * size
    return Run([Word(word.text, x0, x1)], x0, y0, x1, y1, size, face.bold, face.mono)


def _joined(words: Sequence[Run]) -> list[Run]:
    """Neighbours in the text's own order, on one line and not far apart, as runs."""
    runs: list[Run] = []
    for word in words:
        last = runs[-1] if runs else None
        if last and _on_line(last, word) and -0.3 * last.size < word.x0 - last.x1 < JOIN_GAP * min(last.size, word.size):
            last.words.append(word.words[0])
            last.x1, last.y0, last.y1 = max(last.x1, word.x1), min(last.y0, word.y0), max(last.y1, word.y1)
            last.bold, last.mono = last.bold and word.bold, last.mono and word.mono
            last.size = max(last.size, word.size) if len(last.words) < 3 else last.size
        else:
            runs.append(word)
    return runs


def _on_line(run: Run, word: Run) -> bool:
    return min(run.y1, word.y1) - max(run.y0, word.y0) > 0.5 * min(run.y1 - run.y0, word.y1 - word.y0)
