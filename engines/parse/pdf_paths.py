"""Lines and filled areas that a PDF page draws."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pypdfium2 as pdfium
import pypdfium2.raw as c

RulingLine = tuple[float, float, float, float]
"""Left, bottom, right and top in page space; thin in one direction."""

_MAX_OBJECTS = 6000
_MAX_THICKNESS = 3.0
_MIN_LENGTH = 4.0
_MIN_CONTRAST = 24


def find_ruling_lines(page: pdfium.PdfPage) -> list[RulingLine]:
    """Return the ruling lines; none if there are more than 6,000 objects, as on a drawing."""
    count = c.FPDFPage_CountObjects(page.raw)
    return list(_iter_ruling_lines(page, count)) if count <= _MAX_OBJECTS else []


def _iter_ruling_lines(page: pdfium.PdfPage, count: int) -> Iterator[RulingLine]:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    width, height = page.get_size()
    for i in range(count):
        path_object = c.FPDFPage_GetObject(page.raw, i)
        if c.FPDFPageObj_GetType(path_object) != c.FPDF_PAGEOBJ_PATH or not c.FPDFPageObj_GetBounds(
            path_object, left, bottom, right, top
        ):
            continue
        yield from _iter_edges(left.value, bottom.value, right.value, top.value, width * height)


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
                abs(own - other) < _MIN_CONTRAST
                for own, other in zip(self.color, color, strict=False)
            )
        )


def find_filled_areas(page: pdfium.PdfPage) -> list[FilledArea]:
    """Return the filled areas that are higher than a line."""
    count = c.FPDFPage_CountObjects(page.raw)
    return list(_iter_filled_areas(page, count)) if count <= _MAX_OBJECTS else []


def _iter_filled_areas(page: pdfium.PdfPage, count: int) -> Iterator[FilledArea]:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    channels = [ctypes.c_uint() for _ in range(4)]
    fill_mode, stroke = ctypes.c_int(), ctypes.c_int()
    for i in range(count):
        area = c.FPDFPage_GetObject(page.raw, i)
        if (
            c.FPDFPageObj_GetType(area) == c.FPDF_PAGEOBJ_PATH
            and c.FPDFPageObj_GetBounds(area, left, bottom, right, top)
            and min(right.value - left.value, top.value - bottom.value) > _MAX_THICKNESS
            and c.FPDFPath_GetDrawMode(area, fill_mode, stroke)
            and fill_mode.value
            and c.FPDFPageObj_GetFillColor(area, *channels)
        ):
            color = tuple(channel.value for channel in channels[:3])
            yield FilledArea(left.value, bottom.value, right.value, top.value, color)
