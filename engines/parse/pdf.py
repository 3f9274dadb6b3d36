"""PDF reader by pypdfium2: reads text layers, finds pages that need OCR, renders pages."""

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

from engines.layout import (
    LayoutPage,
    build_blocks,
    compute_pages_body_height,
    find_running_lines,
)
from engines.parse.embedded import read_embedded
from engines.parse.pdf_annotations import read_xfa_values
from engines.parse.pdf_fonts import install_stand_in
from engines.parse.pdf_text import read_page_text
from engines.parse.refusals import check_pages, make_corrupt_error, make_encrypted_error
from engines.parsed_blocks import ParsedBlock, ParsedPart
from schemas.values import Notice

DPI = 200
MAX_SIDE_PX = 4000
# The sample only decides the size of the parts; each page is checked again when read.
_SAMPLED_PAGES = 48
_MIN_TEXT_CHARACTERS = 20
_MIN_IMAGE_SHARE = 0.5
_MIN_OUTLINE_PATHS = 300
_NO_PAGES_PATTERN = re.compile(
    rb"/Type\s*/Pages\b[^>]{0,500}/Count\s++0\b|/Count\s++0\b[^>]{0,500}/Type\s*/Pages\b"
)
"""pdfium does not open a PDF without pages, so they are detected by pattern."""
_GENERATED_TITLE = re.compile(
    r"untitled|\(?anonymous\)?$|microsoft (?:word|powerpoint|excel) - |"
    r"[^ ]*\.(?:docx?|pdf|xlsx?|pptx?|rtf|tex|dvi|indd|qxd|html?|txt)$|document\d*$",
    re.I,
)
_PASSWORD_ERRORS = (c.FPDF_ERR_PASSWORD, c.FPDF_ERR_SECURITY)


def inspect_pages(path: Path, max_pages: int) -> tuple[int, bool]:
    """Count the pages, and check a sample of about 48 for pages that need OCR.

    Raises UnreadableDocument (CORRUPT_DOCUMENT, ENCRYPTED_DOCUMENT, NO_PAGES), LimitExceeded
    (TOO_MANY_PAGES).
    """
    # pdfium would still show a part of a truncated file.
    with path.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - 4096))
        if b"%%EOF" not in stream.read():
            raise make_corrupt_error("The PDF is truncated: it has no %%EOF marker.")
    with open_pdf(path) as document:
        pages = len(document)
        check_pages(pages, max_pages)
        step = max(1, pages // _SAMPLED_PAGES)
        return pages, any(
            _should_ocr(page) for page in _iter_pages(document, range(1, pages + 1, step))
        )


def read(path: Path, pages: range) -> ParsedPart:
    """Read the text layer of `pages` (1-based); pages that need OCR are listed in `unread`.

    Text that a reader cannot see is left out with a notice, unless `keep_hidden_text` is in force.
    """
    part = ParsedPart()
    with open_pdf(path) as document:
        if pages.start == 1:
            title = " ".join((document.get_metadata_value("Title") or "").split())
            part.title = title if title and not _GENERATED_TITLE.match(title) else None
            _read_xfa_form(document, part)
        # pdfium tells the values of fields only with a form environment.
        document.init_forms()
        form = document.formenv
        text_pages: list[tuple[LayoutPage, list[ParsedBlock]]] = []
        hidden_counts: dict[int, int] = {}
        for loaded in _iter_pages(document, pages):
            if _should_ocr(loaded):
                part.unread.append(loaded.number)
            else:
                page, other_blocks, hidden_count = read_page_text(
                    loaded.page,
                    loaded.text,
                    loaded.number,
                    form.raw if form else None,
                )
                text_pages.append((page, other_blocks))
                if hidden_count:
                    hidden_counts[loaded.number] = hidden_count
        if hidden_counts:
            part.notices.append(_build_hidden_notice(hidden_counts))
        _clear_dominant_monospace([page for page, _ in text_pages])
        find_running_lines([page for page, _ in text_pages])
        body_height = compute_pages_body_height(page for page, _ in text_pages)
        for page, other_blocks in text_pages:
            part.blocks += build_blocks(page, body_height, has_fonts=True)
            part.blocks += other_blocks
        if pages.stop > len(document):
            _read_attachments(document, part)
    return part


def _build_hidden_notice(counts: dict[int, int]) -> Notice:
    pages = ", ".join(f"page {page} ({count} words)" for page, count in counts.items())
    return Notice(
        code="HIDDEN_TEXT",
        detail="Text that a reader cannot see, because it has no contrast, is too small or is "
        f"outside the page, was not read: {pages}.",
    )


def _read_xfa_form(document: pdfium.PdfDocument, part: ParsedPart) -> None:
    if values := read_xfa_values(document):
        text = "\n".join(f"- {name}: {value}" for name, value in values)
        part.blocks.append(ParsedBlock("list", text, page=1))


def _read_attachments(document: pdfium.PdfDocument, part: ParsedPart) -> None:
    for i in range(document.count_attachments()):
        attachment = document.get_attachment(i)
        try:
            data = bytes(attachment.get_data())
        # Without a stream, or a damaged one: the name alone is known.
        except pdfium.PdfiumError:
            data = b""
        inner = read_embedded(attachment.get_name(), data)
        part.blocks += inner.blocks
        part.notices += inner.notices


def _clear_dominant_monospace(pages: Sequence[LayoutPage]) -> None:
    """Clear the monospace flags if most of the text is monospaced: it is then no sign of code."""
    letters = Counter[bool]()
    for page in pages:
        for run in page.runs:
            letters[run.mono] += len(run.text)
    if letters[True] > letters[False]:
        for page in pages:
            for run in page.runs:
                run.mono = False


def render_page(path: Path, number: int) -> bytes:
    """Render page `number` (1-based) as PNG at 200 dpi, or less to stay within 4,000 pixels."""
    with open_pdf(path) as document, _open_page(document, number) as page:
        longest = max(page.get_size()) / 72
        bitmap = page.render(scale=min(DPI, MAX_SIDE_PX / max(longest, 0.1)) / 72)
        buffer = io.BytesIO()
        # The image goes straight to OCR: speed matters more than size.
        bitmap.to_pil().save(buffer, "PNG", compress_level=1)
        bitmap.close()
        return buffer.getvalue()


class LoadedPage:
    """An open page with its text; closed when its iteration ends."""

    def __init__(self, number: int, page: pdfium.PdfPage) -> None:
        self.number, self.page, self.text = number, page, page.get_textpage()


@contextmanager
def open_pdf(path: Path) -> Iterator[pdfium.PdfDocument]:
    install_stand_in()
    # pypdfium2 would resolve a path, and /proc/self/fd/N does not resolve to a path that can be
    # opened.
    with path.open("rb") as stream:
        # from_buffer needs a writable buffer; ACCESS_COPY leaves the file unchanged.
        # A file inside another document is in memory only.
        mapping = (
            bytearray(stream.getvalue())
            if isinstance(stream, io.BytesIO)
            else mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        )
    try:
        document = pdfium.PdfDocument((ctypes.c_ubyte * len(mapping)).from_buffer(mapping))
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in _PASSWORD_ERRORS:
            raise make_encrypted_error("PDF") from error
        if _NO_PAGES_PATTERN.search(path.read_bytes()):
            # Raises NO_PAGES.
            check_pages(0, 0)
        raise make_corrupt_error(f"The PDF cannot be opened: {error}") from error
    try:
        yield document
    finally:
        document.close()


@contextmanager
def _open_page(document: pdfium.PdfDocument, number: int) -> Iterator[pdfium.PdfPage]:
    try:
        page = document[number - 1]
    except pdfium.PdfiumError as error:
        raise make_corrupt_error(f"Page {number} of the PDF cannot be read: {error}") from error
    try:
        yield page
    finally:
        page.close()


def _iter_pages(document: pdfium.PdfDocument, numbers: range) -> Iterator[LoadedPage]:
    for number in numbers:
        with _open_page(document, number) as page:
            loaded = LoadedPage(number, page)
            try:
                yield loaded
            finally:
                loaded.text.close()


def _should_ocr(page: LoadedPage) -> bool:
    """Return whether a page has hardly any text but a large image, or no usable characters."""
    count = page.text.count_chars()
    sample: str = page.text.get_text_range(0, min(count, 2000)) if count else ""
    if len(sample.strip()) <= _MIN_TEXT_CHARACTERS:
        return _is_covered_by_images(page.page) or (
            not sample.strip() and _has_outlined_text(page.page)
        )
    # Private-use and replacement characters: the font has no mapping to Unicode.
    unmapped = sum(
        1 for letter in sample if letter in "\ufffd\x00" or "\ue000" <= letter <= "\uf8ff"
    )
    return unmapped > 0.5 * max(1, len(sample.replace(" ", "")))


def _is_covered_by_images(page: pdfium.PdfPage) -> bool:
    width, height = page.get_size()
    longest, visible_area = max(width, height), 0.0
    for image in page.get_objects(filter=[c.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = image.get_bounds()
        visible_width = max(0.0, min(right, longest) - max(left, 0))
        visible_area += visible_width * max(0.0, min(top, longest) - max(bottom, 0))
    return bool(visible_area > _MIN_IMAGE_SHARE * width * height)


def _has_outlined_text(page: pdfium.PdfPage) -> bool:
    """Return whether the page has hundreds of paths, as letters drawn as outlines have."""
    paths = page.get_objects(filter=[c.FPDF_PAGEOBJ_PATH], max_depth=3)
    return next(islice(paths, _MIN_OUTLINE_PATHS, None), None) is not None
