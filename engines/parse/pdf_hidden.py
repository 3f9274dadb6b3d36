"""Text of a PDF page that no reader sees: too small, outside the page, or without contrast.

Lines and filled areas that the page draws tell the contrast, and the tables.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pypdfium2 as pdfium
import pypdfium2.raw as c

Word = tuple[float, float, float, float, float, int]
"""Left, bottom, right and top in page space, letter size, and address of the text object."""

_MIN_SIZE, _MIN_SIZE_SHARE = 1.5, 0.3
"""Letters below both are tiny: points, and share of the page's usual size, as a page of tiny units
is enlarged as a whole."""
_MIN_CONTRAST = 20
_LIGHT = 200
_MAX_RENDERED_SIDE = 3000
_INVISIBLE_MODES = (c.FPDF_TEXTRENDERMODE_INVISIBLE, c.FPDF_TEXTRENDERMODE_CLIP)


def find_hidden_words(page: pdfium.PdfPage, words: Sequence[Word]) -> set[int]:
    """Return the indices of the words that a reader cannot see.

    Only where color, mode or layer make it likely, the page is rendered: a word is hidden if its
    place has one color. The text layer of a scan has the scan's letters there.
    """
    if not words:
        return set()
    left, bottom, right, top = page.get_bbox()
    usual_size = statistics.median(word[4] for word in words)
    hidden: set[int] = set()
    suspects: list[int] = []
    areas = list(_iter_filled_areas(page))
    suspicious: dict[int, bool] = {}
    for i, (x0, y0, x1, y1, size, address) in enumerate(words):
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        if not (left <= x <= right and bottom <= y <= top) or (
            size < _MIN_SIZE and size < _MIN_SIZE_SHARE * usual_size
        ):
            hidden.add(i)
        elif address:
            if address not in suspicious:
                suspicious[address] = _is_suspicious(address, areas, x, y)
            if suspicious[address]:
                suspects.append(i)
    return hidden | (_find_invisible(page, words, suspects) if suspects else set())


def _is_suspicious(address: int, areas: Sequence[FilledArea], x: float, y: float) -> bool:
    """Return whether a text object is light, transparent, unpainted, or of its background's color.

    So is one in a layer, which may be off.
    """
    text_object = ctypes.cast(address, c.FPDF_PAGEOBJECT)
    if c.FPDFTextObj_GetTextRenderMode(text_object) in _INVISIBLE_MODES:
        return True
    channels = [ctypes.c_uint() for _ in range(4)]
    c.FPDFPageObj_GetFillColor(text_object, *channels)
    color = [channel.value for channel in channels]
    return (
        min(color[:3]) >= _LIGHT
        or color[3] < 255 - _LIGHT
        or _has_layer(text_object)
        or any(area.hides(color, x, y) for area in areas)
    )


def _has_layer(page_object: c.FPDF_PAGEOBJECT) -> bool:
    length, name = ctypes.c_ulong(), (ctypes.c_ushort * 4)()
    for i in range(max(0, c.FPDFPageObj_CountMarks(page_object))):
        mark = c.FPDFPageObj_GetMark(page_object, i)
        if c.FPDFPageObjMark_GetName(mark, name, ctypes.sizeof(name), length) and bytes(name)[
            :4
        ] == "OC".encode("utf-16-le"):
            return True
    return False


def _find_invisible(
    page: pdfium.PdfPage, words: Sequence[Word], suspects: Sequence[int]
) -> set[int]:
    left, bottom, right, top = page.get_bbox()
    longest = max(right - left, top - bottom, 1.0)
    scale = min(1.0, _MAX_RENDERED_SIDE / longest)
    # Without the page's rotation, so that its corners are those of the words.
    bitmap = page.render(scale=scale, rotation=-page.get_rotation() % 360)
    image = bitmap.to_pil()
    invisible = set()
    for i in suspects:
        x0, y0, x1, y1, _, _ = words[i]
        # The middle of the letters: their boxes reach to the lines of a table.
        inset = 0.25 * (y1 - y0)
        box = [
            max(0, round(value))
            for value in (
                (x0 - left) * scale,
                (top - y1 + inset) * scale,
                (x1 - left) * scale,
                (top - y0 - inset) * scale,
            )
        ]
        area = image.crop((box[0], box[1], max(box[2], box[0] + 1), max(box[3], box[1] + 1)))
        if all(high - low < _MIN_CONTRAST for low, high in area.getextrema()):
            invisible.add(i)
    bitmap.close()
    return invisible


# Lines and filled areas that a PDF page draws.

RulingLine = tuple[float, float, float, float]
"""Left, bottom, right and top in page space; thin in one direction."""

_MAX_OBJECTS = 6000
_MAX_THICKNESS = 3.0
_MIN_LENGTH = 4.0
_MIN_PATH_CONTRAST = 24


def find_ruling_lines(page: pdfium.PdfPage) -> list[RulingLine]:
    """Return the ruling lines; none if there are more than 6,000 objects, as on a drawing."""
    width, height = page.get_size()
    return [
        edge for _, bounds in _iter_paths(page) for edge in _iter_edges(*bounds, width * height)
    ]


def _iter_paths(page: pdfium.PdfPage) -> Iterator[tuple[c.FPDF_PAGEOBJECT, RulingLine]]:
    """Yield each path with its bounds."""
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    count = c.FPDFPage_CountObjects(page.raw)
    for i in range(count if count <= _MAX_OBJECTS else 0):
        path = c.FPDFPage_GetObject(page.raw, i)
        if c.FPDFPageObj_GetType(path) == c.FPDF_PAGEOBJ_PATH and c.FPDFPageObj_GetBounds(
            path, left, bottom, right, top
        ):
            yield path, (left.value, bottom.value, right.value, top.value)


def _iter_edges(
    left: float, bottom: float, right: float, top: float, area: float
) -> Iterator[RulingLine]:
    width, height = right - left, top - bottom
    if min(width, height) <= _MAX_THICKNESS:
        if max(width, height) >= _MIN_LENGTH:
            yield left, bottom, right, top
    elif width * height < 0.8 * area:
        yield from (
            (left, bottom, right, bottom),
            (left, top, right, top),
            (left, bottom, left, top),
            (right, bottom, right, top),
        )


@dataclass(frozen=True, slots=True)
class FilledArea:
    """Area that a path fills; its bounds in page space."""

    left: float
    bottom: float
    right: float
    top: float
    color: tuple[int, ...]

    def hides(self, color: Sequence[int], x: float, y: float) -> bool:
        """Return whether text of this color at a point has no contrast to the area."""
        return (
            self.left <= x <= self.right
            and self.bottom <= y <= self.top
            and all(
                abs(own - other) < _MIN_PATH_CONTRAST
                for own, other in zip(self.color, color, strict=False)
            )
        )


def _iter_filled_areas(page: pdfium.PdfPage) -> Iterator[FilledArea]:
    """Yield the filled areas that are higher than a line."""
    channels = [ctypes.c_uint() for _ in range(4)]
    fill_mode, stroke = ctypes.c_int(), ctypes.c_int()
    for area, (left, bottom, right, top) in _iter_paths(page):
        if (
            min(right - left, top - bottom) > _MAX_THICKNESS
            and c.FPDFPath_GetDrawMode(area, fill_mode, stroke)
            and fill_mode.value
            and c.FPDFPageObj_GetFillColor(area, *channels)
        ):
            color = tuple(channel.value for channel in channels[:3])
            yield FilledArea(left, bottom, right, top, color)
