"""Jobs of the sandbox child: plan a document, read a part, render a page.

Each runs in a process of its own.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from pydantic import TypeAdapter

from engines.parse import archive, text
from engines.parse.embedded import limit_embedded_files
from engines.parse.formats import FORMAT_BY_TYPE, FORMATS, detect_media_type, get_magic
from engines.parse.notices import check_characters, keep_hidden_text, limit_characters
from schemas.ports.engines import ParsePlan
from schemas.values import Notice


def load_readers() -> None:
    """Import every reader, so that a process that is forked for a job imports none."""
    for file_format in FORMATS:
        import_module(f"engines.parse.{file_format.reader.partition('.')[0]}")
    get_magic()


PLAN_ADAPTER = TypeAdapter(ParsePlan)
WHOLE_DOCUMENT = "all"
TEXT_PART_PAGES, OCR_PART_PAGES = 16, 2
"""Pages per part. OCR takes seconds per page, and other documents wait until a part is done."""


def plan_document(path: str, name: str | None, claimed_type: str | None, max_pages: int) -> bytes:
    """Detect the type and split the document into parts; return a ParsePlan as JSON."""
    file = Path(path)
    with text.declare_charset(claimed_type):
        detected = detect_media_type(file, name, claimed_type)
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
    file_format = FORMAT_BY_TYPE[detected.media_type]
    if file_format.zip_entries:
        archive.check_unpacked_size(file)
    parts, pages, size = [WHOLE_DOCUMENT], None, 0
    if file_format.is_paged:
        pages, needs_ocr = file_format.load_paged_reader().inspect_pages(file, max_pages)
        size = OCR_PART_PAGES if needs_ocr else TEXT_PART_PAGES
        parts = [
            f"pages {first}-{min(first + size - 1, pages)}" for first in range(1, pages + 1, size)
        ]
    return PLAN_ADAPTER.dump_json(
        ParsePlan(detected.media_type, tuple(parts), pages, tuple(notices), size)
    )


def read_part(
    path: str,
    media_type: str,
    part: str,
    max_characters: int,
    claimed_type: str | None = None,
    is_hidden_text_kept: bool = False,
) -> bytes:
    """Read one part; return an encoded ParsedPart, with pages that need OCR in `unread`.

    Text is decoded by the charset of `claimed_type`, unless it has a byte order mark.
    """
    file, file_format = Path(path), FORMAT_BY_TYPE[media_type]
    with (
        limit_characters(max_characters),
        text.declare_charset(claimed_type),
        limit_embedded_files(),
        keep_hidden_text(is_hidden_text_kept),
    ):
        if file_format.is_paged:
            first, last = map(int, part.removeprefix("pages ").split("-"))
            parsed_part = file_format.load_paged_reader().read(file, range(first, last + 1))
        else:
            parsed_part = file_format.read(file)
    check_characters(sum(len(block.text) for block in parsed_part.blocks), max_characters)
    return parsed_part.encode()


def render_page(path: str, media_type: str, page: int) -> bytes:
    """Render page `page` (1-based) as PNG for OCR."""
    return FORMAT_BY_TYPE[media_type].load_paged_reader().render_page(Path(path), page)
