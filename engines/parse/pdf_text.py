"""Text layer of a PDF page: letters to words to runs, in coordinates of the upright page.

Letters have loose boxes (the font's full height), because tight ones split numbers ("1 1 .8").
"""

from __future__ import annotations

import ctypes
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import pypdfium2 as pdfium
import pypdfium2.raw as c

from engines.layout import LayoutPage, LayoutWord, TextRun
from engines.layout.ruled_tables import replace_ruled_tables
from engines.layout.text_runs import (
    JOIN_GAP,
    compute_body_height,
    compute_bounds,
    join_spaced_letters,
)
from engines.parse.notices import is_hidden_text_kept
from engines.parse.pdf_hidden import find_hidden_words, find_ruling_lines
from engines.parse.pdf_marks import (
    attach_scripts,
    find_struck_areas,
    is_shifted,
    read_comments,
    read_field_runs,
    strike_words,
)
from engines.parsed_blocks import ParsedBlock, clamp_box
from schemas.values import Box

_MONO = re.compile(
    r"mono|courier|consol|typewriter|menlo|inconsolata|cmtt|lmtt|fixed|sourcecode", re.I
)
_BOLD = re.compile(r"bold|black|heavy|semibold|demi(?!light)|cmbx|-bd|[-_]medi(?!um)", re.I)
_FIXED_PITCH, _FORCE_BOLD = 1, 1 << 18


@dataclass(slots=True)
class _GlyphWord:
    """A word being built: its letters and its box in page space (origin at the bottom left)."""

    first: int
    """Index of the first letter."""
    text: str
    left: float
    bottom: float
    right: float
    top: float


@dataclass(frozen=True, slots=True)
class _FontStyle:
    size: float
    bold: bool
    mono: bool
    turn: int
    """Rotation of the letters in counterclockwise quarter turns."""
    address: int
    """Address of the text object in pdfium."""


def read_page_text(
    page: pdfium.PdfPage,
    text: pdfium.PdfTextPage,
    number: int,
    form: c.FPDF_FORMHANDLE | None = None,
) -> tuple[LayoutPage, list[ParsedBlock], int]:
    """Return the page with upright runs, blocks of other text, and the count of hidden words.

    Other text is vertical writing, text at other angles, mostly stamps at the edge, and comments.
    """
    styles = _StyleReader(text)
    words = [(word, styles.read(word.first)) for word in _read_words(text, styles)]
    hidden = set[int]()
    if not is_hidden_text_kept():
        hidden = find_hidden_words(
            page,
            [
                (word.left, word.bottom, word.right, word.top, style.size, style.address)
                for word, style in words
            ],
        )
        words = [word for i, word in enumerate(words) if i not in hidden]
    turns = Counter[int]()
    for word, style in words:
        turns[style.turn] += len(word.text)
    # The page is read in the direction of most of its letters.
    turn = turns.most_common(1)[0][0] if turns else 0
    view = _PageView.from_page(page, turn)
    upright = [(word, style) for word, style in words if style.turn == turn]
    word_runs, vertical_texts = split_vertical(
        join_spaced_letters(
            [_build_run(view, word, style, text) for word, style in upright],
            lambda i: _has_typed_space(text, upright[i][0].first, upright[i + 1][0].first),
        )
    )
    upright_runs = attach_scripts(word_runs)
    rules = [view.to_upright_box(*rule) for rule in find_ruling_lines(page)] if upright_runs else []
    rules = strike_words(
        upright_runs, rules, [view.to_upright_box(*area) for area in find_struck_areas(page)]
    )
    stamps = " ".join(word.text for word, style in words if style.turn != turn)
    runs = _join_words(upright_runs)
    size = compute_body_height(runs) if runs else _FIELD_SIZE
    for value, box in read_field_runs(page, form):
        runs += _build_field_runs(value, view.to_upright_box(*box), size)
    return (
        LayoutPage(replace_ruled_tables(runs, rules), view.to_share_box, number),
        [
            *(
                ParsedBlock("paragraph", words, page=number, box=view.to_share_box(box))
                for words, box in vertical_texts
            ),
            *(
                ParsedBlock("paragraph", words, page=number)
                for words in [*([stamps] if stamps else []), *read_comments(page)]
            ),
        ],
        len(hidden),
    )


def _has_typed_space(text: pdfium.PdfTextPage, first: int, following: int) -> bool:
    """Return whether a space of the document is between two letters; pdfium adds some for gaps."""
    return any(
        c.FPDFText_GetUnicode(text.raw, i) in (0x20, 0xA0)
        and not c.FPDFText_IsGenerated(text.raw, i)
        for i in range(first + 1, following)
    )


_FIELD_SIZE = 10.0


def _build_field_runs(value: str, box: Box, size: float) -> Iterator[TextRun]:
    """Set the lines of a field or note into its box, in the size of the page's text."""
    x0, y0, x1, y1 = box
    lines = [line for line in value.splitlines() if line.strip()]
    # A single line stands in the middle, as the label beside it does.
    top = (y0 + y1 - size) / 2 if len(lines) == 1 else y0
    for i, line in enumerate(lines):
        y = top + 1.3 * size * i
        width = max(x1 - x0, 1.0) / max(len(line), 1)
        position = x0
        words = []
        for word in line.split():
            words.append(LayoutWord(word, position, position + width * len(word)))
            position += width * (len(word) + 1)
        yield TextRun(words, x0, y, x1, y + size, size, baseline=y + 0.8 * size)


def _read_words(text: pdfium.PdfTextPage, styles: _StyleReader) -> list[_GlyphWord]:
    count = text.count_chars()
    letters = text.get_text_range(0, count) if count else ""
    # Some characters decode to none or several; read them one by one to keep text and boxes
    # aligned.
    if len(letters) != count:
        letters = [chr(c.FPDFText_GetUnicode(text.raw, i)) for i in range(count)]
    rectangle = c.FS_RECTF()
    reference, box, raw = ctypes.byref(rectangle), c.FPDFText_GetLooseCharBox, text.raw
    words: list[_GlyphWord] = []
    word: _GlyphWord | None = None
    for i, letter in enumerate(letters):
        if letter.isspace() or letter == "\x00":
            word = None
            continue
        box(raw, i, reference)  # fills `rectangle`
        left, bottom, right, top = rectangle.left, rectangle.bottom, rectangle.right, rectangle.top
        # The common case first and inline: this loop runs for every letter of a document.
        if (
            word is not None
            and bottom == word.bottom
            and 0.0 <= left - word.right < 0.2 * (top - bottom)
        ):
            word.text += letter
            word.right = right
            word.top = max(word.top, top)
        elif (
            word is not None
            and _is_continuing(word, left, bottom, right, top)
            and (bottom == word.bottom or not styles.is_shifted(word.first, i))
        ):
            word.text += letter
            word.left, word.right = min(word.left, left), max(word.right, right)
            word.bottom, word.top = min(word.bottom, bottom), max(word.top, top)
        else:
            word = _GlyphWord(i, letter, left, bottom, right, top)
            words.append(word)
    return words


def _is_continuing(word: _GlyphWord, left: float, bottom: float, right: float, top: float) -> bool:
    """Return whether a letter touches the word, along the line or, for rotated text, across it."""
    height = min(word.top - word.bottom, top - bottom) or 1.0
    width = min(word.right - word.left, right - left) or 1.0
    distance = max(left - word.right, word.left - right)
    is_beside = (
        min(word.top, top) - max(word.bottom, bottom) > 0.3 * height
        and -1.5 * height < distance < 0.3 * height
    )
    is_stacked = (
        min(word.right, right) - max(word.left, left) > 0.6 * width
        and max(bottom - word.top, word.bottom - top) < 0.3 * width
    )
    return is_beside or (
        is_stacked and not min(word.top, top) - max(word.bottom, bottom) > 0.3 * height
    )


@lru_cache(maxsize=1024)
def _classify_font_name(font: bytes) -> tuple[bool, bool]:
    """Return whether a font's name means bold, and whether it means monospaced."""
    name = font.decode("latin-1")
    return bool(_BOLD.search(name)), bool(_MONO.search(name))


# The declared prototype returns a pointer object, which is slow to compare.
_get_text_object_address = ctypes.cast(
    c.FPDFText_GetTextObject, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
)


class _StyleReader:
    """Reads the styles of letters, once for each text object: all its letters have the same."""

    def __init__(self, text: pdfium.PdfTextPage) -> None:
        self._raw = text.raw
        self._styles: dict[int | None, _FontStyle] = {}

    def read(self, i: int) -> _FontStyle:
        key = _get_text_object_address(self._raw, i)
        style = self._styles.get(key) if key else None
        if style is None:
            style = self._styles[key] = _read_style(self._raw, i, key or 0)
        return style

    def is_shifted(self, i: int, j: int) -> bool:
        """Return whether two letters of a line stand at different heights in different sizes."""
        first, second = self.read(i), self.read(j)
        if first is second or first.turn != second.turn:
            return False
        first_rise, second_rise = (
            read_rise(self._raw, letter, style.turn) for letter, style in ((i, first), (j, second))
        )
        rise = second_rise - first_rise if second.size < first.size else first_rise - second_rise
        return is_shifted(first.size, second.size, rise)


def _read_style(raw: c.FPDF_TEXTPAGE, i: int, address: int) -> _FontStyle:
    flags, buffer = ctypes.c_int(), ctypes.create_string_buffer(128)
    c.FPDFText_GetFontInfo(raw, i, buffer, 128, ctypes.byref(flags))
    named_bold, named_mono = _classify_font_name(buffer.value)
    matrix = c.FS_MATRIX()
    c.FPDFText_GetMatrix(raw, i, ctypes.byref(matrix))
    # The text matrix scales the font size.
    size = c.FPDFText_GetFontSize(raw, i) * math.hypot(matrix.c, matrix.d)
    bold = named_bold or bool(flags.value & _FORCE_BOLD) or c.FPDFText_GetFontWeight(raw, i) >= 600
    mono = named_mono or bool(flags.value & _FIXED_PITCH)
    turn = round(-c.FPDFText_GetCharAngle(raw, i) / (math.pi / 2)) % 4
    return _FontStyle(size, bold, mono, turn, address)


def read_rise(raw: c.FPDF_TEXTPAGE, i: int, turn: int) -> float:
    """Return the position of a letter's baseline along its upward direction, in page space."""
    x, y = ctypes.c_double(), ctypes.c_double()
    c.FPDFText_GetCharOrigin(raw, i, x, y)
    return (y.value, -x.value, -y.value, x.value)[turn]


@dataclass(frozen=True, slots=True)
class _PageView:
    """Conversion between page space and the page turned until its text is upright."""

    to_page: Callable[[float, float], tuple[float, float]]
    """Page space to shares of the page as displayed, origin at the top left."""
    width: float
    height: float
    turn: int

    @staticmethod
    def from_page(page: pdfium.PdfPage, turn: int) -> _PageView:
        left, bottom, right, top = page.get_bbox()
        page_width, page_height = max(right - left, 1e-6), max(top - bottom, 1e-6)
        rotation = page.get_rotation() // 90 % 4

        def to_page_point(x: float, y: float) -> tuple[float, float]:
            return _rotate_point((x - left) / page_width, (top - y) / page_height, rotation)

        width, height = page.get_size()
        return _PageView(to_page_point, width, height, (turn - rotation) % 4)

    def to_upright_box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """Convert a box from page space to points of the upright page."""
        first_corner = _rotate_point(*self.to_page(left, top), self.turn)
        second_corner = _rotate_point(*self.to_page(right, bottom), self.turn)
        width, height = self._get_upright_size()
        xs = sorted((first_corner[0], second_corner[0]))
        ys = sorted((first_corner[1], second_corner[1]))
        return xs[0] * width, ys[0] * height, xs[1] * width, ys[1] * height

    def to_share_box(self, box: Box) -> Box:
        """Convert a box from points of the upright page to shares of the page as displayed."""
        width, height = self._get_upright_size()
        first_corner = _rotate_point(box[0] / width, box[1] / height, -self.turn % 4)
        second_corner = _rotate_point(box[2] / width, box[3] / height, -self.turn % 4)
        xs = sorted((first_corner[0], second_corner[0]))
        ys = sorted((first_corner[1], second_corner[1]))
        return clamp_box((xs[0], ys[0], xs[1], ys[1]))

    def _get_upright_size(self) -> tuple[float, float]:
        return (self.width, self.height) if self.turn % 2 == 0 else (self.height, self.width)


def _rotate_point(x: float, y: float, quarters: int) -> tuple[float, float]:
    """Turn a point with the unit square clockwise by quarter turns, origin at the top left."""
    for _ in range(quarters):
        x, y = 1 - y, x
    return x, y


def _build_run(
    view: _PageView, word: _GlyphWord, style: _FontStyle, text: pdfium.PdfTextPage
) -> TextRun:
    x0, y0, x1, y1 = view.to_upright_box(word.left, word.bottom, word.right, word.top)
    foot = (word.bottom, -word.right, -word.top, word.left)[style.turn]
    baseline = y1 - (read_rise(text.raw, word.first, style.turn) - foot)
    size = style.size or (y1 - y0)
    # The loose boxes of some fonts are far taller than their letters.
    if y1 - y0 > 1.6 * size:
        middle = (y0 + y1) / 2
        y0, y1 = middle - 0.6 * size, middle + 0.6 * size
    words = [LayoutWord(word.text, x0, x1)]
    return TextRun(words, x0, y0, x1, y1, size, style.bold, style.mono, baseline=baseline)


def _join_words(words: Sequence[TextRun]) -> list[TextRun]:
    """Join words to runs that follow each other in text order, on one line and close together."""
    runs: list[TextRun] = []
    for word in words:
        last = runs[-1] if runs else None
        if (
            last
            # On the same line.
            and min(last.y1, word.y1) - max(last.y0, word.y0)
            > 0.5 * min(last.y1 - last.y0, word.y1 - word.y0)
            and -0.3 * last.size < word.x0 - last.x1 < JOIN_GAP * min(last.size, word.size)
        ):
            last.words.append(word.words[0])
            last.x1 = max(last.x1, word.x1)
            last.y0 = min(last.y0, word.y0)
            last.y1 = max(last.y1, word.y1)
            last.bold, last.mono = last.bold and word.bold, last.mono and word.mono
            last.size = max(last.size, word.size) if len(last.words) < 3 else last.size
        else:
            runs.append(word)
    return runs


# Vertical writing: columns of East Asian letters, read from the top and from the right.

_LETTERS = re.compile(
    r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe10-\ufe4f\uff00-\uffef]+"
)
_MIN_COLUMN_LETTERS = 3
_MAX_STEP = 1.8
"""Distance from letter to letter down a column, in letter sizes."""
_MAX_COLUMN_GAP = 3.0
_SENTENCE_ENDS = ("。", "！", "？", "．", ".", "!", "?")

Column = list[TextRun]


def split_vertical(runs: Sequence[TextRun]) -> tuple[list[TextRun], list[tuple[str, Box]]]:
    """Return the horizontal runs, and each vertical text with its box."""
    columns = [column for column in _find_columns(runs) if _is_vertical(column, runs)]
    if not columns:
        return list(runs), []
    vertical_ids = {id(run) for column in columns for run in column}
    blocks = [
        (_join_columns(group), compute_bounds(run for column in group for run in column))
        for group in _group_columns(columns)
    ]
    return [run for run in runs if id(run) not in vertical_ids], blocks


def _find_columns(runs: Sequence[TextRun]) -> Iterator[Column]:
    column: Column = []
    for run in runs:
        if column and not (_is_upright_letter(run) and _is_below(column[-1], run)):
            yield column
            column = []
        if _is_upright_letter(run):
            column.append(run)
    if column:
        yield column


def _is_upright_letter(run: TextRun) -> bool:
    """Return whether the run is one letter, or letters below each other."""
    return _LETTERS.fullmatch(run.text) is not None and run.width < 1.6 * run.size


def _is_below(upper: TextRun, lower: TextRun) -> bool:
    return (
        abs((upper.x0 + upper.x1) - (lower.x0 + lower.x1)) < upper.size
        and -0.6 * upper.size < lower.y0 - upper.y1 < (_MAX_STEP - 1) * upper.size
        and lower.y0 > upper.y0
    )


def _is_vertical(column: Column, runs: Sequence[TextRun]) -> bool:
    """Return whether the letters are closer to those below them than to those beside them.

    Otherwise they are lines of letters that are set apart.
    """
    if sum(len(run.text) for run in column) < _MIN_COLUMN_LETTERS:
        return False
    step = max((lower.y0 - upper.y1 for upper, lower in pairwise(column)), default=0.0)
    own_ids = {id(run) for run in column}
    x0, y0, x1, y1 = compute_bounds(column)
    gaps = [
        max(run.x0 - x1, x0 - run.x1)
        for run in runs
        if id(run) not in own_ids and run.y0 < y1 and run.y1 > y0
    ]
    return all(gap > step for gap in gaps)


def _group_columns(columns: Sequence[Column]) -> list[list[Column]]:
    """Group the columns that are beside each other, each group from the right."""
    groups: list[list[Column]] = []
    for column in sorted(columns, key=lambda column: -column[0].x1):
        _, y0, x1, y1 = compute_bounds(column)
        for group in groups:
            left, top, _, bottom = compute_bounds(group[-1])
            if left - x1 < _MAX_COLUMN_GAP * column[0].size and min(bottom, y1) - max(
                top, y0
            ) > 0.5 * min(bottom - top, y1 - y0):
                group.append(column)
                break
        else:
            groups.append([column])
    return groups


def _join_columns(columns: Sequence[Column]) -> str:
    """Join the columns; one that ends above the others ends a paragraph."""
    bottom = max(column[-1].y1 for column in columns)
    text = ""
    for i, column in enumerate(columns):
        text += "".join(run.text for run in column)
        is_short = bottom - column[-1].y1 > 1.5 * column[0].size
        if i + 1 < len(columns) and (is_short or text.endswith(_SENTENCE_ENDS)):
            text += "\n"
    return text
