"""Marks that change the meaning of a word: raised and lowered text, footnote marks, strikes."""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from xml.etree.ElementTree import ParseError, fromstring

import pypdfium2 as pdfium
import pypdfium2.raw as c

from engines.layout import TextRun
from engines.layout.text_runs import compute_body_height
from engines.parse.scripts import format_subscript, format_superscript
from schemas.values import Box

_MIN_SCRIPT_SIZE, MAX_SCRIPT_SIZE = 0.5, 0.87
"""Size of raised text as a share of its neighbor's; a drop cap's text is smaller than that."""
_MIN_RISE, _MAX_RISE = 0.15, 0.75
_MIN_DROP, _MAX_DROP = 0.06, 0.45
_MAX_SCRIPT_GAP = 0.25
_MAX_TOUCHING_GAP = 0.12
_NOTE_LABEL = re.compile(r"[1-9]\d{0,2}|[*†‡§]{1,3}|[a-z]")
_ORDINAL = re.compile(r"(?:st|nd|rd|th|[oa]s?|er|re|i?e|[ºª]|ᵉ)\.?")
"""Raised letters after a number that the same word has in its line elsewhere: 4th, 1er, 2o."""
_EXPONENT_BASE = re.compile(r"(?:.*\W)?10|(?:.*[\W\d])?(?:[kcdmµn]?m|ft|in|yd|s)")
"""The power of ten and the units whose raised digit is never the mark of a note."""
_MIN_STRUCK_SHARE = 0.7
_MAX_STRIKE_THICKNESS = 0.35
_STRIKE_BAND = (0.12, 0.52)
"""Heights above the baseline, in letter sizes, that a strike crosses; an underline is below."""


def is_shifted(size: float, other_size: float, rise: float) -> bool:
    """Return whether a letter is a superscript or subscript of the other, or the reverse.

    `rise` is the height of the smaller one's baseline above the larger one's.
    """
    return min(size, other_size) <= MAX_SCRIPT_SIZE * max(size, other_size) and bool(
        _classify_shift(rise / max(size, other_size, 1e-6))
    )


def _classify_shift(share: float) -> int:
    if _MIN_RISE <= share <= _MAX_RISE:
        return 1
    return -1 if -_MAX_DROP <= share <= -_MIN_DROP else 0


def _classify_script(script: TextRun, base: TextRun, gap: float) -> int:
    """Return 1 if `script` is a superscript of the word `base` at its side, -1 for a subscript."""
    if (
        not _MIN_SCRIPT_SIZE * base.size <= script.size <= MAX_SCRIPT_SIZE * base.size
        or not -0.3 * base.size < gap < _MAX_SCRIPT_GAP * base.size
        or len(script.text) > 8
    ):
        return 0
    return _classify_shift((base.baseline - script.baseline) / base.size)


def attach_scripts(words: Sequence[TextRun]) -> list[TextRun]:
    """Attach superscripts and subscripts to their words; name the marks of notes on the page."""
    body_height = compute_body_height(words)
    shifts: dict[int, int] = {}
    bases: dict[int, int] = {}
    for i, word in enumerate(words):
        for j in _iter_base_candidates(words, i, body_height):
            if shift := _classify_script(word, words[j], word.x0 - words[j].x1):
                shifts[i], bases[i] = shift, j
                break
        else:
            if i + 1 < len(words) and (
                shift := _classify_script(word, words[i + 1], words[i + 1].x0 - word.x1)
            ):
                shifts[i] = shift
    if not shifts:
        return list(words)
    marks = {words[i].text for i, shift in shifts.items() if shift > 0 and i in bases}
    notes = _find_notes(words, shifts, bases, marks, body_height)
    attached: dict[int, TextRun] = {}
    for i, word in enumerate(words):
        base_index = bases.get(i)
        if base_index is not None and base_index in attached:
            _append(attached[base_index], word, _format_mark(words, i, base_index, shifts, notes))
            # What follows the mark belongs to the same word.
            attached[i] = attached[base_index]
            continue
        text = word.text
        if i in notes:
            text = f"[^{_strip_label(text)}]:"
        elif i in shifts:
            text = (format_superscript if shifts[i] > 0 else format_subscript)(text)
        last = attached.get(i - 1)
        if (
            last is not None
            and i - 1 in bases
            and word.x0 - last.x1 < _MAX_TOUCHING_GAP * word.size
            and abs(word.baseline - last.baseline) < 0.1 * word.size
            and i not in notes
        ):
            _append(last, word, text)
            attached[i] = last
        else:
            attached[i] = _set_text(word, text)
    return list({id(word): word for word in attached.values()}.values())


def _iter_base_candidates(words: Sequence[TextRun], i: int, body_height: float) -> Sequence[int]:
    previous = range(max(0, i - 1), i)
    # Some programs write all raised digits of a page after its other text.
    if words[i].size <= MAX_SCRIPT_SIZE * body_height and _NOTE_LABEL.fullmatch(words[i].text):
        return [*previous, *range(i - 1)]
    return previous


def _find_notes(
    words: Sequence[TextRun],
    shifts: dict[int, int],
    bases: dict[int, int],
    marks: set[str],
    body_height: float,
) -> set[int]:
    """Return the words that begin a note at the foot whose mark occurs above it."""
    labels = {label for mark in marks for label in mark.split(",")}
    notes = set[int]()
    for i, word in enumerate(words):
        label = _strip_label(word.text)
        is_raised = shifts.get(i, 0) > 0
        if (
            label in labels
            and i not in bases
            and (is_raised or word.size < 0.93 * body_height)
            and _NOTE_LABEL.fullmatch(label)
            and _begins_note(words, i)
            and any(
                words[j].text == label and words[j].y1 < word.y0 for j in bases if shifts[j] > 0
            )
        ):
            notes.add(i)
    return notes


def _begins_note(words: Sequence[TextRun], i: int) -> bool:
    """Return whether a word begins its line, and words follow it there: axes have numbers only."""
    word, following = words[i], words[i + 1 : i + 3]
    return (
        len(following) == 2
        and any(other.text[0].isalpha() for other in following)
        and all(
            abs(other.middle - word.middle) < 0.6 * other.size and other.x0 > word.x0
            for other in following
        )
        and following[0].x0 - word.x1 < 2 * word.size
        and not any(
            abs(other.middle - word.middle) < 0.5 * word.size
            and -1 < word.x0 - other.x1 < 4 * word.size
            for j, other in enumerate(words)
            if j != i
        )
    )


def _strip_label(text: str) -> str:
    return text.rstrip(".):") or text


def _format_mark(
    words: Sequence[TextRun], i: int, base: int, shifts: dict[int, int], notes: set[int]
) -> str:
    text = words[i].text
    if shifts[i] < 0:
        return format_subscript(text)
    labels = text.split(",")
    note_labels = {_strip_label(words[j].text) for j in notes if words[j].y0 > words[i].y1}
    if set(labels) <= note_labels and not _EXPONENT_BASE.fullmatch(words[base].text):
        return "".join(f"[^{label}]" for label in labels)
    if words[base].text[-1:].isdigit() and _ORDINAL.fullmatch(text):
        return text
    return format_superscript(text)


def _append(base: TextRun, word: TextRun, text: str) -> None:
    last = base.words[-1]
    base.words[-1] = replace(last, text=last.text + text, x1=max(last.x1, word.x1))
    base.x1 = max(base.x1, word.x1)


def _set_text(word: TextRun, text: str) -> TextRun:
    word.words[0] = replace(word.words[0], text=text)
    return word


def strike_words(words: Sequence[TextRun], rules: Sequence[Box], areas: Sequence[Box]) -> list[Box]:
    """Mark the words that a rule crosses in the middle, or that an area covers; return other rules.

    A strike ends where its words end. A rule of a table goes further, or below the letters.
    """
    by_baseline = sorted(words, key=lambda word: word.baseline)
    baselines = [word.baseline for word in by_baseline]
    tallest = max((word.size for word in words), default=0.0)
    remaining: list[Box] = []
    struck: dict[int, TextRun] = {}
    for rule in rules:
        x0, y0, x1, y1 = rule
        y = (y0 + y1) / 2
        crossed_words = (
            [
                word
                for word in by_baseline[
                    bisect_left(baselines, y) : bisect_right(baselines, y + tallest)
                ]
                if _STRIKE_BAND[0] * word.size < word.baseline - y < _STRIKE_BAND[1] * word.size
                and min(x1, word.x1) - max(x0, word.x0) > _MIN_STRUCK_SHARE * word.width
                and y1 - y0 < _MAX_STRIKE_THICKNESS * word.size
            ]
            if x1 - x0 > y1 - y0
            else []
        )
        if (
            crossed_words
            and min(word.x0 - 0.5 * word.size for word in crossed_words) < x0
            and x1 < max(word.x1 + 0.5 * word.size for word in crossed_words)
        ):
            struck |= {id(word): word for word in crossed_words}
        else:
            remaining.append(rule)
    for x0, y0, x1, y1 in areas:
        struck |= {
            id(word): word
            for word in words
            if x0 < (word.x0 + word.x1) / 2 < x1 and y0 < word.middle < y1
        }
    for word in struck.values():
        _set_text(word, f"~~{word.text}~~")
    return remaining


# Annotations of a PDF page: strikes, notes, and the values of form fields.

PageBox = tuple[float, float, float, float]
"""Left, bottom, right and top in page space."""


def iter_annotations(page: pdfium.PdfPage) -> Iterator[tuple[int, c.FPDF_ANNOTATION]]:
    """Yield the subtype and handle of each annotation that a viewer shows."""
    for i in range(c.FPDFPage_GetAnnotCount(page.raw)):
        annotation = c.FPDFPage_GetAnnot(page.raw, i)
        if not annotation:
            continue
        try:
            if not c.FPDFAnnot_GetFlags(annotation) & _INVISIBLE_FLAGS:
                yield c.FPDFAnnot_GetSubtype(annotation), annotation
        finally:
            c.FPDFPage_CloseAnnot(annotation)


_INVISIBLE_FLAGS = c.FPDF_ANNOT_FLAG_HIDDEN | c.FPDF_ANNOT_FLAG_NOVIEW


def find_struck_areas(page: pdfium.PdfPage) -> list[PageBox]:
    """Return the areas that strike-out annotations cover."""
    areas: list[PageBox] = []
    quad = c.FS_QUADPOINTSF()
    for subtype, annotation in iter_annotations(page):
        if subtype != c.FPDF_ANNOT_STRIKEOUT:
            continue
        for i in range(c.FPDFAnnot_CountAttachmentPoints(annotation)):
            if c.FPDFAnnot_GetAttachmentPoints(annotation, i, quad):
                xs, ys = (quad.x1, quad.x2, quad.x3, quad.x4), (quad.y1, quad.y2, quad.y3, quad.y4)
                areas.append((min(xs), min(ys), max(xs), max(ys)))
    return areas


def read_field_runs(
    page: pdfium.PdfPage, form: c.FPDF_FORMHANDLE | None
) -> Iterator[tuple[str, PageBox]]:
    """Yield the values of form fields and the notes written onto the page, each with its place.

    A check box or radio button yields `[x]` or `[ ]`.
    """
    rectangle = c.FS_RECTF()
    for subtype, annotation in iter_annotations(page):
        if subtype == c.FPDF_ANNOT_WIDGET and form:
            text = _read_field(form, annotation)
        elif subtype == c.FPDF_ANNOT_FREETEXT:
            text = _read_string(annotation, b"Contents")
        else:
            continue
        if text.strip() and c.FPDFAnnot_GetRect(annotation, rectangle):
            # The parser orders the two corners as the file has them.
            xs = sorted((rectangle.left, rectangle.right))
            ys = sorted((rectangle.bottom, rectangle.top))
            yield text.strip(), (xs[0], ys[0], xs[1], ys[1])


def read_comments(page: pdfium.PdfPage) -> Iterator[str]:
    """Yield the comments that readers attached to places of the page."""
    for subtype, annotation in iter_annotations(page):
        if subtype in _COMMENT_SUBTYPES and (
            text := " ".join(_read_string(annotation, b"Contents").split())
        ):
            yield text


_COMMENT_SUBTYPES = frozenset(
    [
        c.FPDF_ANNOT_TEXT,
        c.FPDF_ANNOT_HIGHLIGHT,
        c.FPDF_ANNOT_UNDERLINE,
        c.FPDF_ANNOT_SQUIGGLY,
        c.FPDF_ANNOT_STRIKEOUT,
        c.FPDF_ANNOT_STAMP,
        c.FPDF_ANNOT_CARET,
    ]
)
_PASSWORD_FIELD = 1 << 13
_PUSH_BUTTON = c.FPDF_FORMFIELD_PUSHBUTTON


def _read_field(form: c.FPDF_FORMHANDLE, annotation: c.FPDF_ANNOTATION) -> str:
    kind = c.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in (c.FPDF_FORMFIELD_CHECKBOX, c.FPDF_FORMFIELD_RADIOBUTTON):
        return "[x]" if c.FPDFAnnot_IsChecked(form, annotation) else "[ ]"
    if kind < 0 or kind == _PUSH_BUTTON:
        return ""
    flags = c.FPDFAnnot_GetFormFieldFlags(form, annotation)
    if kind == c.FPDF_FORMFIELD_TEXTFIELD and flags & _PASSWORD_FIELD:
        return ""
    return _decode(
        lambda buffer, size: c.FPDFAnnot_GetFormFieldValue(form, annotation, buffer, size)
    )


def _read_string(annotation: c.FPDF_ANNOTATION, key: bytes) -> str:
    return _decode(lambda buffer, size: c.FPDFAnnot_GetStringValue(annotation, key, buffer, size))


def read_xfa_values(document: pdfium.PdfDocument) -> list[tuple[str, str]]:
    """Return the names and values of an XFA form, whose pages only ask for another viewer."""
    for i in range(max(0, c.FPDF_GetXFAPacketCount(document.raw))):
        size = c.FPDF_GetXFAPacketName(document.raw, i, None, 0)
        name = ctypes.create_string_buffer(size)
        c.FPDF_GetXFAPacketName(document.raw, i, name, size)
        if name.value == b"datasets":
            length = ctypes.c_ulong()
            c.FPDF_GetXFAPacketContent(document.raw, i, None, 0, length)
            content = ctypes.create_string_buffer(length.value)
            c.FPDF_GetXFAPacketContent(document.raw, i, content, length.value, length)
            # expat reads no external entities and limits the growth by others.
            try:
                root = fromstring(content.raw)
            except ParseError:
                return []
            return [
                (element.tag.rpartition("}")[2], " ".join(element.text.split()))
                for element in root.iter()
                if not len(element) and element.text and element.text.strip()
            ]
    return []


def _decode(fill: Callable[[object, int], int]) -> str:
    """Read a UTF-16 string by asking for its size first."""
    size = fill(None, 0)
    buffer = ctypes.create_string_buffer(size)
    fill(ctypes.cast(buffer, ctypes.POINTER(c.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0")
