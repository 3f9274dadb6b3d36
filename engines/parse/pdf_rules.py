"""Lines that are drawn on a PDF page: thin paths, and the edges of boxes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pypdfium2 as pdfium
import pypdfium2.raw as c

Rule = tuple[float, float, float, float]
"""left, bottom, right, top in page space; thin in one direction"""

_MOST_OBJECTS = 6000
_THICKEST = 3.0
_SHORTEST = 4.0


def rules_of(page: pdfium.PdfPage) -> list[Rule]:
    """None on a page of more than 6,000 objects: that is a drawing."""
    count = c.FPDFPage_CountObjects(page.raw)
    return list(_rules(page, count)) if count <= _MOST_OBJECTS else []


def _rules(page: pdfium.PdfPage, count: int) -> Iterator[Rule]:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    width, height = page.get_size()
    for i in range(count):
        item = c.FPDFPage_GetObject(page.raw, i)
        if c.FPDFPageObj_GetType(item) != c.FPDF_PAGEOBJ_PATH or not c.FPDFPageObj_GetBounds(item, left, bottom, right, top):
            continue
        yield from _edges(left.value, bottom.value, right.value, top.value, width * height)


def _edges(left: float, bottom: float, right: float, top: float, area: float) -> Iterator[Rule]:
    across, up = right - left, top - bottom
    if min(across, up) <= _THICKEST:
        if max(across, up) >= _SHORTEST:
            yield left, bottom, right, top
    elif across * up < 0.8 * area:
        yield from ((left, bottom, right, bottom), (left, top, right, top), (left, bottom, left, top), (right, bottom, right, top))
