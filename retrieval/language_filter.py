"""Language gate: words of one language say little about a text in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from retrieval.query_plan import QueryPlan
from schemas.ports.search import ChunkView, Hit

MIN_CORPUS_CHUNKS = 200
"""Chunks below which the gate is off: in a tiny corpus a name that both languages share may be all there is."""


def find_foreign_hits(hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView], plan: QueryPlan) -> list[Hit]:
    """Hits in a document of another language than the question's; none while the question's language is not sure."""
    if not plan.language_sure:
        return []
    return [hit for hit in hits if hit.chunk_id in chunks and _is_foreign(chunks[hit.chunk_id], plan.language)]


def filter_foreign_hits(hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView], plan: QueryPlan, corpus_size: int) -> list[Hit]:
    """Lexical hits without the foreign ones; all of them in a small corpus."""
    foreign = {hit.chunk_id for hit in find_foreign_hits(hits, chunks, plan)} if corpus_size >= MIN_CORPUS_CHUNKS else set()
    return [hit for hit in hits if hit.chunk_id not in foreign]


def _is_foreign(chunk: ChunkView, language: str | None) -> bool:
    return chunk.language is not None and chunk.language.split("-")[0] != language
