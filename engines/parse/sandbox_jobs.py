"""Jobs of the sandbox child: plan a document, read a part, render a page.

Format readers are imported on first use.
"""

from __future__ import annotations

import json
from pathlib import Path

from engines.parse import archive, media_types
from engines.parse.limits import check_characters, check_pages, limit_characters
from engines.parsed_blocks import ParsedPart
from schemas.values import Notice

WHOLE_DOCUMENT = "all"
TEXT_PART_PAGES, OCR_PART_PAGES = 16, 2
"""Pages per part. OCR takes seconds per page, and other documents wait until a part is done."""
_ZIP_TYPES = frozenset(
    {
        media_types.DOCX,
        media_types.PPTX,
        media_types.XLSX,
        media_types.ODT,
        media_types.ODS,
        media_types.EPUB,
    }
)


def plan_document(path: str, name: str | None, claimed_type: str | None, max_pages: int) -> bytes:
    """Detect the type and split the document into parts.

    Return JSON with media_type, parts, pages and notices.
    """
    file = Path(path)
    detected = media_types.detect_media_type(file, name, claimed_type)
    notices = (
        [
            Notice(
                code="TYPE_MISMATCH",
                detail=f"claimed as {detected.claimed_type}, read as {detected.media_type}",
            )
        ]
        if detected.is_mislabeled
        else []
    )
    if detected.media_type in _ZIP_TYPES:
        archive.check_unpacked_size(file)
    parts, pages = _plan_parts(file, detected.media_type, max_pages)
    record = {
        "media_type": detected.media_type,
        "parts": parts,
        "pages": pages,
        "notices": [notice.model_dump() for notice in notices],
    }
    return json.dumps(record).encode()


def _plan_parts(file: Path, media_type: str, max_pages: int) -> tuple[list[str], int | None]:
    if media_type == media_types.PDF:
        from engines.parse import pdf

        pages, needs_ocr = pdf.inspect_pages(file, max_pages)
        return _format_page_ranges(pages, OCR_PART_PAGES if needs_ocr else TEXT_PART_PAGES), pages
    if media_type in media_types.IMAGE_TYPES:
        from engines.parse import image

        pages = image.count_frames(file)
        check_pages(pages, max_pages)
        return _format_page_ranges(pages, OCR_PART_PAGES), pages
    return [WHOLE_DOCUMENT], None


def _format_page_ranges(pages: int, size: int) -> list[str]:
    return [f"pages {first}-{min(first + size - 1, pages)}" for first in range(1, pages + 1, size)]


def parse_page_range(part: str) -> range:
    first, last = part.removeprefix("pages ").split("-")
    return range(int(first), int(last) + 1)


def read_part(path: str, media_type: str, part: str, max_characters: int) -> bytes:
    """Read one part and return it as an encoded ParsedPart, with pages that need OCR in `unread`."""
    with limit_characters(max_characters):
        parsed_part = _read_by_type(Path(path), media_type, part)
    check_characters(sum(len(block.text) for block in parsed_part.blocks), max_characters)
    return parsed_part.encode()


def _read_by_type(file: Path, media_type: str, part: str) -> ParsedPart:
    match media_type:
        case media_types.PDF:
            from engines.parse import pdf

            return pdf.read(file, parse_page_range(part))
        case media_types.HTML:
            from engines.parse import html

            return html.read(file.read_bytes())
        case media_types.MARKDOWN:
            from engines.parse import markdown

            return markdown.read(file.read_bytes())
        case media_types.PLAIN:
            from engines.parse import text

            return text.read(file.read_bytes())
        case media_types.CSV:
            from engines.parse import spreadsheets

            return spreadsheets.read_csv(file.read_bytes())
        case _ if media_type in media_types.IMAGE_TYPES:
            return ParsedPart(unread=list(parse_page_range(part)))
        case _ if media_type in media_types.SPREADSHEET_TYPES:
            from engines.parse import spreadsheets

            return spreadsheets.read_workbook(file)
    from engines.parse import office

    return office.read(file, media_type)


def render_page(path: str, media_type: str, page: int) -> bytes:
    """Render page `page` (1-based) as PNG for OCR."""
    if media_type == media_types.PDF:
        from engines.parse import pdf

        return pdf.render_page(Path(path), page)
    from engines.parse import image

    return image.render_frame(Path(path), page)
