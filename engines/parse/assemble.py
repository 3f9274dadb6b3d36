"""Parts to one transcript: running headers and footers go, headings get their levels, texts get their offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

from engines.drafts import Draft, Piece
from engines.parse.furniture import without_furniture
from engines.parse.headings import with_levels
from schemas.values import Block, Span, Transcript

_GAP = "\n\n"


def assemble(pieces: Sequence[Piece], *, pages: int | None) -> Transcript:
    """`warnings` are those of the parts; the plan has its own."""
    drafts = with_levels(without_furniture([draft for piece in pieces for draft in piece.drafts if draft.text.strip()]))
    markdown, blocks = _joined(drafts)
    return Transcript(
        markdown=markdown,
        blocks=blocks,
        title=_first(piece.title for piece in pieces),
        language=_first(piece.language for piece in pieces),
        pages=pages,
        ocr_pages=sorted({page for piece in pieces for page in piece.ocr_pages}),
        document_date=_date(_first(piece.date for piece in pieces)),
        warnings=list(dict.fromkeys(notice for piece in pieces for notice in piece.notices)),
    )


def _first(values: Iterable[str | None]) -> str | None:
    return next((value.strip() for value in values if value and value.strip()), None)


def _joined(drafts: Sequence[Draft]) -> tuple[str, list[Block]]:
    texts, blocks, at = [], [], 0
    for draft in drafts:
        text = f"{'#' * (draft.level or 1)} {draft.text}" if draft.kind == "heading" else draft.text
        texts.append(text)
        blocks.append(_block(draft, at, len(text)))
        at += len(text) + len(_GAP)
    return _GAP.join(texts), blocks


def _block(draft: Draft, start: int, length: int) -> Block:
    span = Span(char_start=start, char_end=start + length, page=draft.page, box=draft.box, element=draft.element, sheet=draft.sheet, cells=draft.cells)
    header_end = None if draft.header_end is None else start + draft.header_end
    return Block(kind=draft.kind, span=span, level=draft.level if draft.kind == "heading" else None, language=draft.language, header_end=header_end)


def _date(stated: str | None) -> date | None:
    try:
        return date.fromisoformat(stated[:10]) if stated else None
    except ValueError:
        return None
