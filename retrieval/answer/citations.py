"""Build citations from quotes, each verified against the stored text."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.answer.headings import resolve_section
from retrieval.answer.quote_candidates import QuoteCandidate
from retrieval.results import format_link, list_pages, parse_spans
from schemas.questions import Citation
from schemas.values import Span


def build_citation(n: int, quote_candidate: QuoteCandidate) -> Citation | None:
    """Build the citation, or return None when the quote differs from the stored text at its
    position.
    """
    chunk, view = quote_candidate.chunk, quote_candidate.context.view
    start, end = chunk.char_start + quote_candidate.start, chunk.char_start + quote_candidate.end
    quote = quote_candidate.text
    if (
        not is_verbatim(quote, start, end, view.text, view.char_start)
        or chunk.char_start + len(chunk.text) != chunk.char_end
    ):
        return None
    spans = clip_spans(parse_spans(chunk), start, end)
    pages = list_pages(spans) or list(view.pages)
    return Citation(
        n=n,
        document_id=chunk.document_id,
        external_id=chunk.external_id,
        revision=chunk.revision,
        chunk_id=chunk.chunk_id,
        title=chunk.title,
        source_uri=chunk.source_uri,
        link=format_link(chunk.document_id, pages, start, end),
        section=resolve_section(
            view.text,
            view.section,
            quote_candidate.chunk.char_start + quote_candidate.start - view.char_start,
        ),
        pages=pages,
        spans=spans,
        quote=quote,
        header=list(quote_candidate.header) if quote_candidate.header else None,
    )


def is_verbatim(quote: str, start: int, end: int, text: str, text_start: int) -> bool:
    """True when the document's characters `[start, end)` equal the quote. `text` begins at
    `text_start`.
    """
    return (
        bool(quote) and start >= text_start and text[start - text_start : end - text_start] == quote
    )


def clip_spans(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Clip spans to `[start, end)`, keeping page and box; without any, return the bare character
    range.
    """
    clipped = [
        span.model_copy(
            update={"char_start": max(span.char_start, start), "char_end": min(span.char_end, end)}
        )
        for span in spans
        if span.char_start < end and start < span.char_end
    ]
    return clipped or [Span(char_start=start, char_end=end)]
