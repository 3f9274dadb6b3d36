"""Results as they are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from retrieval.expand import RankedParent
from retrieval.words import unaccented
from schemas.ports.search import ChunkView, ParentView
from schemas.questions import Result
from schemas.values import Span

SNIPPET = 400
"""Characters of a snippet at most."""


def results(parents: Sequence[RankedParent], views: Mapping[UUID, ParentView], keywords: Sequence[str], *, explain: bool) -> list[Result]:
    """Numbered from 1. A parent that can no longer be read is left out."""
    there = [parent for parent in parents if parent.parent_id in views]
    return [_result(rank, parent, views[parent.parent_id], keywords, explain) for rank, parent in enumerate(there, 1)]


def _result(rank: int, parent: RankedParent, view: ParentView, keywords: Sequence[str], explain: bool) -> Result:
    chunk = parent.best.chunk
    spans = spans_of(chunk)
    pages = pages_of(spans) or list(view.pages)
    return Result(
        rank=rank,
        score=parent.score,
        document_id=parent.document_id,
        external_id=chunk.external_id,
        revision=chunk.revision,
        title=chunk.title,
        source_uri=chunk.source_uri,
        link=link(chunk.document_id, pages, chunk.char_start, chunk.char_end),
        chunk_id=chunk.chunk_id,
        parent_id=parent.parent_id,
        section=view.section,
        pages=pages,
        spans=spans,
        snippet=snippet(chunk.text, keywords),
        channels=dict(parent.best.places),
        duplicates=parent.duplicate_documents(),
        explanation=explanation(parent) if explain else None,
    )


def explanation(parent: RankedParent) -> dict[str, Any]:
    """Every number that entered the score; the addends of fusion are those of the best child."""
    return {"score": parent.score, "rerank_score": parent.rerank, "children_found": parent.children, **parent.parts}


def spans_of(chunk: ChunkView) -> list[Span]:
    return [Span.model_validate(dict(span)) for span in chunk.spans]


def pages_of(spans: Sequence[Span]) -> list[int]:
    return sorted({span.page for span in spans if span.page is not None})


def link(document_id: UUID, pages: Sequence[int], char_start: int, char_end: int) -> str:
    """The original file at its page; without pages the Markdown at its characters (RFC 5147)."""
    if pages:
        return f"/v1/documents/{document_id}/file#page={pages[0]}"
    return f"/v1/documents/{document_id}/markdown#char={char_start},{char_end}"


def snippet(text: str, keywords: Sequence[str]) -> str:
    """Up to 400 characters of the text, from the words before the first keyword on."""
    flat = " ".join(text.split())
    if len(flat) <= SNIPPET:
        return flat
    bare = unaccented(flat.lower())
    places = [place for word in keywords if (place := bare.find(unaccented(word))) >= 0] if len(bare) == len(flat) else []
    start = max(0, min(min(places, default=0) - 80, len(flat) - SNIPPET))
    start = flat.find(" ", start) + 1 if start else 0
    end = flat.rfind(" ", start, start + SNIPPET)
    return ("… " if start else "") + flat[start:end] + (" …" if end < len(flat) - 1 else "")
