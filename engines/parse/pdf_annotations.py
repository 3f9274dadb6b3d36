"""Annotations of a PDF page: strikes, notes, and the values of form fields."""

from __future__ import annotations

from collections.abc import Iterator

import pypdfium2 as pdfium
import pypdfium2.raw as c

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
