"""PDF reader by pypdfium2: reads text layers, finds pages that need OCR, renders pages."""

from __future__ import annotations

import ctypes
import io
import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as c

from engines.layout import LayoutPage, build_blocks, compute_pages_body_height, find_running_lines
from engines.parse.embedded import read_embedded
from engines.parse.notices import check_pages, make_corrupt_error, make_encrypted_error
from engines.parse.pdf_marks import read_xfa_values
from engines.parse.pdf_text import read_page_text
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
            if values := read_xfa_values(document):
                text = "\n".join(f"- {name}: {value}" for name, value in values)
                part.blocks.append(ParsedBlock("list", text, page=1))
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
                    loaded.page, loaded.text, loaded.number, form.raw if form else None
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


def _read_attachments(document: pdfium.PdfDocument, part: ParsedPart) -> None:
    for i in range(document.count_attachments()):
        attachment = document.get_attachment(i)
        try:
            data = bytes(attachment.get_data())
        # Without a stream, or a damaged one: the name alone is known.
        except pdfium.PdfiumError:
            data = b""
        part.extend(read_embedded(attachment.get_name(), data))


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


# A stand-in for the Chinese, Japanese and Korean fonts that a PDF names without embedding them.
# pdfium leaves out text whose letters have no outline. The stand-in draws a box for every
# character, so that the text is read the same on machines with and without such fonts.

_EAST_ASIAN = frozenset(
    {
        c.FXFONT_SHIFTJIS_CHARSET,
        c.FXFONT_GB2312_CHARSET,
        c.FXFONT_CHINESEBIG5_CHARSET,
        c.FXFONT_HANGEUL_CHARSET,
    }
)
_UNITS, _ASCENT, _DESCENT = 1000, 880, -120
_BOX = (50, -100, 950, 850)
_LAST_CHARACTER = 0xFFFF
# Handles of the system's fonts are addresses.
_STAND_IN = 1


def build_stand_in() -> bytes:
    """Return a TrueType font whose only outline, a box, stands for every character.

    See the OpenType specification for the tables.
    """
    x0, y0, x1, y1 = _BOX
    outline = struct.pack(">hhhhhHH4B", 1, *_BOX, 3, 0, 1, 1, 1, 1)
    outline += struct.pack(">8h", x0, 0, x1 - x0, 0, y0, y1 - y0, 0, y0 - y1)
    outline += b"\0" * (-len(outline) % 4)
    tables = {
        # Format 13 maps a range of characters to one glyph.
        b"cmap": struct.pack(">HHHHI", 0, 1, 3, 10, 12)
        + struct.pack(">HHIIIIII", 13, 0, 28, 0, 1, 0x20, _LAST_CHARACTER, 1),
        b"glyf": outline * 2,
        b"head": struct.pack(
            ">IIIIHHQQ4hHHhhh",
            *(0x10000, 0x10000, 0, 0x5F0F3CF5, 0, _UNITS, 0, 0),
            *_BOX,
            *(0, 8, 2, 1, 0),
        ),
        b"hhea": struct.pack(
            ">IhhhH11hH", 0x10000, _ASCENT, _DESCENT, 0, _UNITS, x0, x0, x1, 1, *[0] * 7, 2
        ),
        b"hmtx": struct.pack(">HhHh", _UNITS, x0, _UNITS, x0),
        b"loca": struct.pack(">III", 0, len(outline), 2 * len(outline)),
        b"maxp": struct.pack(">IHHH11H", 0x10000, 2, 4, 1, 0, 0, 1, *[0] * 8),
        b"post": struct.pack(">IIhh5I", 0x30000, 0, 0, 0, *[0] * 5),
    }
    header = struct.pack(">IHHHH", 0x10000, len(tables), 128, 3, 16 * len(tables) - 128)
    offset = len(header) + 16 * len(tables)
    directory = body = b""
    for tag, data in tables.items():
        directory += tag + struct.pack(">III", 0, offset + len(body), len(data))
        body += data + b"\0" * (-len(data) % 4)
    return header + directory + body


@cache
def install_stand_in() -> c.FPDF_SYSFONTINFO:
    """Let pdfium use the stand-in, and the system's fonts for every other script.

    The result must stay referenced as long as pdfium is used, which the cache sees to.
    """
    font = build_stand_in()
    system = c.FPDF_GetDefaultSystemFontInfo()
    types = dict(c.FPDF_SYSFONTINFO._fields_)

    def map_font(
        _: object, weight: int, italic: int, charset: int, pitch: int, face: object, exact: object
    ) -> int:
        if charset in _EAST_ASIAN:
            return _STAND_IN
        return int(
            system.contents.MapFont(system, weight, italic, charset, pitch, face, exact) or 0
        )

    def get_font_data(_: object, handle: int, table: int, buffer: int | None, size: int) -> int:
        if handle != _STAND_IN:
            return int(system.contents.GetFontData(system, handle, table, buffer, size) or 0)
        if table:
            return 0
        if buffer and size >= len(font):
            ctypes.memmove(buffer, font, len(font))
        return len(font)

    def get_face_name(_: object, handle: int, buffer: object, size: int) -> int:
        if handle == _STAND_IN:
            return 0
        return int(system.contents.GetFaceName(system, handle, buffer, size) or 0)

    def get_charset(_: object, handle: int) -> int:
        if handle == _STAND_IN:
            return int(c.FXFONT_DEFAULT_CHARSET)
        return int(system.contents.GetFontCharset(system, handle) or 0)

    def delete_font(_: object, handle: int) -> None:
        if handle != _STAND_IN:
            system.contents.DeleteFont(system, handle)

    info = c.FPDF_SYSFONTINFO(
        version=1,
        Release=types["Release"](lambda _: None),
        EnumFonts=types["EnumFonts"](lambda _, mapper: system.contents.EnumFonts(system, mapper)),
        MapFont=types["MapFont"](map_font),
        GetFont=types["GetFont"](lambda _, face: system.contents.GetFont(system, face) or 0),
        GetFontData=types["GetFontData"](get_font_data),
        GetFaceName=types["GetFaceName"](get_face_name),
        GetFontCharset=types["GetFontCharset"](get_charset),
        DeleteFont=types["DeleteFont"](delete_font),
    )
    c.FPDF_SetSystemFontInfo(ctypes.byref(info))
    return info
