"""Annotations of a PDF page: strikes, notes, and the values of form fields."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from xml.etree.ElementTree import ParseError, fromstring

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
