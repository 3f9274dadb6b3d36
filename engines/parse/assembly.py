"""Assembly of parts into a transcript: drops running headers, sets levels and offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

from engines.parse.headings import assign_levels
from engines.parse.running_headers import remove_running_headers
from engines.parsed_blocks import ParsedBlock, ParsedPart
from schemas.values import Block, Span, Transcript

_BLOCK_SEPARATOR = "\n\n"


def assemble_transcript(parts: Sequence[ParsedPart], *, pages: int | None) -> Transcript:
    """Assemble the transcript of a document.

    Its warnings are those of the parts, without the plan's.
    """
    parsed_blocks = assign_levels(
        remove_running_headers(
            [
                parsed_block
                for part in parts
                for parsed_block in part.blocks
                if parsed_block.text.strip()
            ]
        )
    )
    markdown, blocks = _join_blocks(parsed_blocks)
    return Transcript(
        markdown=markdown,
        blocks=blocks,
        title=_first_text(part.title for part in parts),
        language=_first_text(part.language for part in parts),
        pages=pages,
        ocr_pages=sorted({page for part in parts for page in part.ocr_pages}),
        document_date=_parse_date(_first_text(part.date for part in parts)),
        warnings=list(dict.fromkeys(notice for part in parts for notice in part.notices)),
    )


def _first_text(values: Iterable[str | None]) -> str | None:
    return next((value.strip() for value in values if value and value.strip()), None)


def _join_blocks(parsed_blocks: Sequence[ParsedBlock]) -> tuple[str, list[Block]]:
    texts, blocks, offset = [], [], 0
    for parsed_block in parsed_blocks:
        text = (
            f"{'#' * (parsed_block.level or 1)} {parsed_block.text}"
            if parsed_block.kind == "heading"
            else parsed_block.text
        )
        texts.append(text)
        blocks.append(_to_block(parsed_block, offset, len(text)))
        offset += len(text) + len(_BLOCK_SEPARATOR)
    return _BLOCK_SEPARATOR.join(texts), blocks


def _to_block(parsed_block: ParsedBlock, start: int, length: int) -> Block:
    span = Span(
        char_start=start,
        char_end=start + length,
        page=parsed_block.page,
        box=parsed_block.box,
        element=parsed_block.element,
        sheet=parsed_block.sheet,
        cells=parsed_block.cells,
    )
    header_end = None if parsed_block.header_end is None else start + parsed_block.header_end
    return Block(
        kind=parsed_block.kind,
        span=span,
        level=parsed_block.level if parsed_block.kind == "heading" else None,
        language=parsed_block.language,
        header_end=header_end,
    )


def _parse_date(iso_date: str | None) -> date | None:
    try:
        return date.fromisoformat(iso_date[:10]) if iso_date else None
    except ValueError:
        return None
