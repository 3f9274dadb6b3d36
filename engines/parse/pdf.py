"""PDF by pypdfium2: counted, told apart into pages with a text layer and pages that need OCR, read with boxes, drawn."""

from __future__ import annotations

import ctypes
import io
import mmap
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as c

from engines.drafts import Draft, Piece
from engines.layout import Page, body_of, build
from engines.parse.archive import corrupt
from engines.parse.limits import check_pages
from engines.parse.pdf_text import page_text
from schemas.errors import UnreadableDocument

DPI = 200
LONGEST_SIDE = 4000
_SAMPLED = 48
_FEW_CHARACTERS = 20
_MUCH_OF_PAGE = 0.5
_MANY_PATHS = 300
_PAGELESS = re.compile(rb"/Type\s*/Pages\b[^>]{0,500}/Count\s++0\b|/Count\s++0\b[^>]{0,500}/Type\s*/Pages\b")
"""pdfium does not open what has no pages"""
_NO_TITLE = re.compile(
    r"untitled|\(?anonymous\)?$|microsoft (?:word|powerpoint|excel) - |[^ ]*\.(?:docx?|pdf|xlsx?|pptx?|rtf|tex|dvi|indd|qxd|html?|txt)$|document\d*$", re.I
)
_PASSWORD = (c.FPDF_ERR_PASSWORD, c.FPDF_ERR_SECURITY)


def look(path: Path, max_pages: int) -> tuple[int, bool]:
    """Number of pages, and whether any of up to 48 of them, spread evenly, needs OCR.

    Raises UnreadableDocument (CORRUPT_DOCUMENT, ENCRYPTED_DOCUMENT, NO_PAGES), LimitExceeded (TOO_MANY_PAGES).
    """
    _check_end(path)
    with opened(path) as document:
        pages = len(document)
        check_pages(pages, max_pages)
        step = max(1, pages // _SAMPLED)
        return pages, any(_is_unread(page) for page in _pages(document, range(1, pages + 1, step)))


def read(path: Path, pages: range) -> Piece:
    """The text layer of `pages` (1-based); pages without one are named in `unread`."""
    piece = Piece()
    with opened(path) as document:
        piece.title = _title(document) if pages.start == 1 else None
        found: list[tuple[Page, list[str]]] = []
        for loaded in _pages(document, pages):
            if _is_unread(loaded):
                piece.unread.append(loaded.number)
            else:
                found.append(page_text(loaded.page, loaded.text, loaded.number))
        _forget_typewriter([page for page, _ in found])
        body = body_of(page for page, _ in found)
        for page, stamps in found:
            piece.drafts += build(page, body, styled=True)
            piece.drafts += [Draft("paragraph", stamp, page=page.number) for stamp in stamps]
    return piece


def _title(document: pdfium.PdfDocument) -> str | None:
    """As the metadata say, unless a program wrote it there: a file name, "Untitled"."""
    stated = " ".join((document.get_metadata_value("Title") or "").split())
    return None if not stated or _NO_TITLE.match(stated) else stated


def _forget_typewriter(pages: Sequence[Page]) -> None:
    """Where most text is monospaced, that is how the document is set and no sign of code."""
    letters = Counter[bool]()
    for page in pages:
        for run in page.runs:
            letters[run.mono] += len(run.text)
    if letters[True] > letters[False]:
        for page in pages:
            for run in page.runs:
                run.mono = False


def draw(path: Path, number: int) -> bytes:
    """Page `number` (1-based) at 200 dpi (less where that would exceed 4,000 pixels) as PNG."""
    with opened(path) as document, _page(document, number) as page:
        longest = max(page.get_size()) / 72
        bitmap = page.render(scale=min(DPI, LONGEST_SIDE / max(longest, 0.1)) / 72)
        out = io.BytesIO()
        bitmap.to_pil().save(out, "PNG", compress_level=1)
        bitmap.close()
        return out.getvalue()


class Loaded:
    """A page with its text, for as long as the loop is at it."""

    def __init__(self, number: int, page: pdfium.PdfPage) -> None:
        self.number, self.page, self.text = number, page, page.get_textpage()


def _mapped(path: Path) -> ctypes.Array[ctypes.c_ubyte]:
    """Return the file as memory that is read when needed. pypdfium2 would resolve a path, which a descriptor in /proc does not survive."""
    with path.open("rb") as stream:
        mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    return (ctypes.c_ubyte * len(mapping)).from_buffer(mapping)


@contextmanager
def opened(path: Path) -> Iterator[pdfium.PdfDocument]:
    try:
        document = pdfium.PdfDocument(_mapped(path))
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in _PASSWORD:
            raise UnreadableDocument("the PDF is encrypted", code="ENCRYPTED_DOCUMENT", remedy="Save it without a password and send that.") from error
        if _PAGELESS.search(path.read_bytes()):
            check_pages(0, 0)
        raise corrupt(f"the PDF cannot be opened: {error}") from error
    try:
        yield document
    finally:
        document.close()


def _check_end(path: Path) -> None:
    """A PDF ends with %%EOF; one that does not was cut short, and what pdfium would still show of it is not the document."""
    with path.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - 4096))
        if b"%%EOF" not in stream.read():
            raise corrupt("the PDF ends in the middle (no %%EOF)")


@contextmanager
def _page(document: pdfium.PdfDocument, number: int) -> Iterator[pdfium.PdfPage]:
    try:
        page = document[number - 1]
    except pdfium.PdfiumError as error:
        raise corrupt(f"page {number} of the PDF cannot be read: {error}") from error
    try:
        yield page
    finally:
        page.close()


def _pages(document: pdfium.PdfDocument, numbers: range) -> Iterator[Loaded]:
    for number in numbers:
        with _page(document, number) as page:
            loaded = Loaded(number, page)
            try:
                yield loaded
            finally:
                loaded.text.close()


def _is_unread(page: Loaded) -> bool:
    """Hardly any text under a picture that fills the page, or a text layer of glyphs that say nothing."""
    count = page.text.count_chars()
    sample: str = page.text.get_text_range(0, min(count, 2000)) if count else ""
    if len(sample.strip()) <= _FEW_CHARACTERS:
        return _covered_by_images(page.page) or (not sample.strip() and _has_marks(page.page))
    unmapped = sum(1 for letter in sample if letter in "\ufffd\x00" or "\ue000" <= letter <= "\uf8ff")
    return unmapped > 0.5 * max(1, len(sample.replace(" ", "")))


def _covered_by_images(page: pdfium.PdfPage) -> bool:
    width, height = page.get_size()
    area: float = sum(_area(item, width, height) for item in page.get_objects(filter=[c.FPDF_PAGEOBJ_IMAGE], max_depth=3))
    return bool(area > _MUCH_OF_PAGE * width * height)


def _has_marks(page: pdfium.PdfPage) -> bool:
    """Letters drawn as outlines: hundreds of paths and no text at all."""
    paths = page.get_objects(filter=[c.FPDF_PAGEOBJ_PATH], max_depth=3)
    return next(islice(paths, _MANY_PATHS, None), None) is not None


def _area(item: pdfium.PdfObject, width: float, height: float) -> float:
    left, bottom, right, top = item.get_bounds()
    longest = max(width, height)
    return float(max(0.0, min(right, longest) - max(left, 0)) * max(0.0, min(top, longest) - max(bottom, 0)))
