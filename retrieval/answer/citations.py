"""Citations: quotes sliced from the stored text and compared with it before anyone sees them."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.answer.headings import section_at
from retrieval.answer.quotables import Quotable
from retrieval.results import link, pages_of, spans_of
from schemas.questions import Citation
from schemas.values import Span


def cite(n: int, item: Quotable) -> Citation | None:
    """The citation, or None where the quote is not what the stored text holds at its place."""
    chunk, view = item.chunk, item.context.view
    start, end = chunk.char_start + item.start, chunk.char_start + item.end
    quote = item.text
    if not verified(quote, start, end, view.text, view.char_start) or chunk.char_start + len(chunk.text) != chunk.char_end:
        return None
    spans = spans_between(spans_of(chunk), start, end)
    pages = pages_of(spans) or list(view.pages)
    return Citation(
        n=n,
        document_id=chunk.document_id,
        external_id=chunk.external_id,
        revision=chunk.revision,
        chunk_id=chunk.chunk_id,
        title=chunk.title,
        source_uri=chunk.source_uri,
        link=link(chunk.document_id, pages, start, end),
        section=section_at(view.text, view.section, item.chunk.char_start + item.start - view.char_start),
        pages=pages,
        spans=spans,
        quote=quote,
        header=list(item.header) if item.header else None,
    )


def verified(quote: str, start: int, end: int, text: str, text_start: int) -> bool:
    """Whether the document's characters `[start, end)` are the quote, by a stored text that begins at `text_start`."""
    return bool(quote) and start >= text_start and text[start - text_start : end - text_start] == quote


def spans_between(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """The parts of the spans that lie in `[start, end)`, each with its page and box; the bare characters where none does."""
    cut = [
        span.model_copy(update={"char_start": max(span.char_start, start), "char_end": min(span.char_end, end)})
        for span in spans
        if span.char_start < end and start < span.char_end
    ]
    return cut or [Span(char_start=start, char_end=end)]
