"""Lines and filled areas that a PDF page draws."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pypdfium2 as pdfium
import pypdfium2.raw as c

RulingLine = tuple[float, float, float, float]
"""Left, bottom, right and top in page space; thin in one direction."""

_MAX_OBJECTS = 6000
_MAX_THICKNESS = 3.0
_MIN_LENGTH = 4.0


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


def has_fill(page: pdfium.PdfPage, color: tuple[int, ...], x: float, y: float) -> bool:
    """Return whether the page fills an area around a point with about this color."""
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    channels = [ctypes.c_uint() for _ in range(4)]
    for i in range(min(c.FPDFPage_CountObjects(page.raw), _MAX_OBJECTS)):
        area = c.FPDFPage_GetObject(page.raw, i)
        if (
            c.FPDFPageObj_GetType(area) == c.FPDF_PAGEOBJ_PATH
            and c.FPDFPageObj_GetBounds(area, left, bottom, right, top)
            and left.value <= x <= right.value
            and bottom.value <= y <= top.value
            and c.FPDFPageObj_GetFillColor(area, *channels)
            and all(
                abs(channel.value - value) < 24
                for channel, value in zip(channels[:3], color, strict=False)
            )
        ):
            return True
    return False
