"""Language gate: words of one language say little about a text in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from retrieval.plan import Plan
from schemas.ports.search import ChunkView, Hit

SMALLEST_CORPUS = 200
"""Chunks below which the gate is off: in a tiny corpus languages tell too little."""


def same_language(hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView], plan: Plan, corpus_size: int) -> Sequence[Hit]:
    """Lexical hits without those in another language than the question's. Off when the language is not sure, or given up when it would leave the corpus's own language out."""
    if not plan.language_sure or corpus_size < SMALLEST_CORPUS:
        return hits
    return [hit for hit in hits if _speaks(chunks.get(hit.chunk_id), plan.language)]


def _speaks(chunk: ChunkView | None, language: str | None) -> bool:
    return chunk is None or chunk.language is None or language is None or chunk.language.split("-")[0] == language
