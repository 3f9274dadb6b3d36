"""Build search results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from retrieval.parent_expansion import RankedParent
from retrieval.words import strip_accents
from schemas.ports.search import ChunkView, ParentView
from schemas.questions import SearchResult
from schemas.values import Span

MAX_SNIPPET_CHARACTERS = 400


def build_results(
    parents: Sequence[RankedParent],
    views: Mapping[UUID, ParentView],
    keywords: Sequence[str],
    *,
    explain: bool,
) -> list[SearchResult]:
    """Build results, ranked from 1. Parents that are no longer readable are left out."""
    readable_parents = [parent for parent in parents if parent.parent_id in views]
    return [
        _build_result(rank, parent, views[parent.parent_id], keywords, explain)
        for rank, parent in enumerate(readable_parents, 1)
    ]


def _build_result(
    rank: int, parent: RankedParent, view: ParentView, keywords: Sequence[str], explain: bool
) -> SearchResult:
    chunk = parent.best.chunk
    spans = parse_spans(chunk)
    pages = list_pages(spans) or list(view.pages)
    return SearchResult(
        rank=rank,
        score=parent.score,
        document_id=parent.document_id,
        external_id=chunk.external_id,
        revision=chunk.revision,
        title=chunk.title,
        source_uri=chunk.source_uri,
        link=format_link(chunk.document_id, pages, chunk.char_start, chunk.char_end),
        chunk_id=chunk.chunk_id,
        parent_id=parent.parent_id,
        section=view.section,
        pages=pages,
        spans=spans,
        snippet=extract_snippet(chunk.text, keywords),
        channels=dict(parent.best.channel_places),
        duplicates=parent.duplicate_documents(),
        explanation=explain_score(parent) if explain else None,
    )


def explain_score(parent: RankedParent) -> dict[str, Any]:
    """Return every number that entered the score. Fusion addends are those of the best child."""
    return {
        "score": parent.score,
        "rerank_score": parent.rerank_score,
        "children_found": parent.children_count,
        **parent.score_parts,
    }


def parse_spans(chunk: ChunkView) -> list[Span]:
    return [Span.model_validate(dict(span)) for span in chunk.spans]


def list_pages(spans: Sequence[Span]) -> list[int]:
    return sorted({span.page for span in spans if span.page is not None})


def format_link(document_id: UUID, pages: Sequence[int], char_start: int, char_end: int) -> str:
    """Link to the file at its page or, without pages, to the Markdown at its characters (RFC 5147)."""
    if pages:
        return f"/v1/documents/{document_id}/file#page={pages[0]}"
    return f"/v1/documents/{document_id}/markdown#char={char_start},{char_end}"


def extract_snippet(text: str, keywords: Sequence[str]) -> str:
    """Return up to 400 characters of the text, starting shortly before the first keyword."""
    line = " ".join(text.split())
    if len(line) <= MAX_SNIPPET_CHARACTERS:
        return line
    folded_line = strip_accents(line.lower())
    keyword_offsets = (
        [offset for word in keywords if (offset := folded_line.find(strip_accents(word))) >= 0]
        if len(folded_line) == len(line)
        else []
    )
    start = max(0, min(min(keyword_offsets, default=0) - 80, len(line) - MAX_SNIPPET_CHARACTERS))
    start = line.find(" ", start) + 1 if start else 0
    end = line.rfind(" ", start, start + MAX_SNIPPET_CHARACTERS)
    return ("… " if start else "") + line[start:end] + (" …" if end < len(line) - 1 else "")
