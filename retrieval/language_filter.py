"""Drop lexical hits in another language than the query: shared words say little about such a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from retrieval.query_plan import QueryPlan
from schemas.ports.search import ChunkView, Hit

# The filter is off in smaller corpora: a name that both languages share may be the only match.
MIN_CORPUS_CHUNKS = 200


def find_foreign_hits(
    hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView], plan: QueryPlan
) -> list[Hit]:
    """Return hits in documents of another language; none while the query's language is uncertain."""
    if not plan.language_sure:
        return []
    return [
        hit
        for hit in hits
        if hit.chunk_id in chunks and _is_foreign(chunks[hit.chunk_id], plan.language)
    ]


def filter_foreign_hits(
    hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView], plan: QueryPlan, corpus_size: int
) -> list[Hit]:
    """Return the hits without foreign ones; all of them in a small corpus."""
    foreign = (
        {hit.chunk_id for hit in find_foreign_hits(hits, chunks, plan)}
        if corpus_size >= MIN_CORPUS_CHUNKS
        else set()
    )
    return [hit for hit in hits if hit.chunk_id not in foreign]


def _is_foreign(chunk: ChunkView, language: str | None) -> bool:
    return chunk.language is not None and chunk.language.split("-")[0] != language
