"""What runs in the child: look at a file, read one part of it, draw one page. Formats are imported when first met."""

from __future__ import annotations

import json
from pathlib import Path

from engines.drafts import Piece
from engines.parse import archive, detect
from engines.parse.limits import character_budget, check_characters, check_pages
from schemas.values import Notice

WHOLE = "all"
TEXT_PART, OCR_PART = 16, 2
"""Pages of one part. OCR takes seconds a page, and one part is what another document waits for."""
_ZIPPED = frozenset({detect.DOCX, detect.PPTX, detect.XLSX, detect.ODT, detect.ODS, detect.EPUB})


def plan(path: str, name: str | None, claimed: str | None, max_pages: int) -> bytes:
    """JSON: media type, parts, pages, notices."""
    file = Path(path)
    found = detect.detect(file, name, claimed)
    notices = [Notice(code="TYPE_MISMATCH", detail=f"named {found.claimed}, read as {found.media_type}")] if found.mislabelled else []
    if found.media_type in _ZIPPED:
        archive.measure(file)
    parts, pages = _parts(file, found.media_type, max_pages)
    record = {"media_type": found.media_type, "parts": parts, "pages": pages, "notices": [notice.model_dump() for notice in notices]}
    return json.dumps(record).encode()


def _parts(file: Path, media_type: str, max_pages: int) -> tuple[list[str], int | None]:
    if media_type == detect.PDF:
        from engines.parse import pdf

        pages, scanned = pdf.look(file, max_pages)
        return _ranges(pages, OCR_PART if scanned else TEXT_PART), pages
    if media_type in detect.IMAGES:
        from engines.parse import image

        pages = image.look(file)
        check_pages(pages, max_pages)
        return _ranges(pages, OCR_PART), pages
    return [WHOLE], None


def _ranges(pages: int, size: int) -> list[str]:
    return [f"pages {first}-{min(first + size - 1, pages)}" for first in range(1, pages + 1, size)]


def page_range(part: str) -> range:
    first, last = part.removeprefix("pages ").split("-")
    return range(int(first), int(last) + 1)


def read_part(path: str, media_type: str, part: str, max_characters: int) -> bytes:
    """One part as an encoded Piece; pages that only OCR can read are named in `unread`."""
    with character_budget(max_characters):
        piece = _read(Path(path), media_type, part)
    check_characters(sum(len(draft.text) for draft in piece.drafts), max_characters)
    return piece.encode()


def _read(file: Path, media_type: str, part: str) -> Piece:
    match media_type:
        case detect.PDF:
            from engines.parse import pdf

            return pdf.read(file, page_range(part))
        case detect.HTML:
            from engines.parse import html

            return html.read(file.read_bytes())
        case detect.MARKDOWN:
            from engines.parse import markdown

            return markdown.read(file.read_bytes())
        case detect.PLAIN:
            from engines.parse import text

            return text.read(file.read_bytes())
        case detect.CSV:
            from engines.parse import sheets

            return sheets.read_csv(file.read_bytes())
        case _ if media_type in detect.IMAGES:
            return Piece(unread=list(page_range(part)))
        case _ if media_type in detect.SHEETS:
            from engines.parse import sheets

            return sheets.read_workbook(file)
    from engines.parse import office

    return office.read(file, media_type)


def draw(path: str, media_type: str, page: int) -> bytes:
    """Page `page` (1-based) as PNG, for OCR."""
    if media_type == detect.PDF:
        from engines.parse import pdf

        return pdf.draw(Path(path), page)
    from engines.parse import image

    return image.draw(Path(path), page)
