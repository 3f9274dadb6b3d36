"""Hits in another language than the question: words that both share say little about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from retrieval.question.query_plan import QueryPlan
from schemas.channels import LexicalProfile
from schemas.ports.search import ChunkView, Hit


def find_foreign_hits(
    hits: Sequence[Hit], chunks: Mapping[UUID, ChunkView], plan: QueryPlan
) -> list[Hit]:
    """Return hits in documents of another language; none if the query's language is uncertain."""
    return [
        hit
        for hit in hits
        if hit.chunk_id in chunks and plan.is_foreign(chunks[hit.chunk_id].language)
    ]


def filter_foreign_hits(
    hits: Sequence[Hit],
    chunks: Mapping[UUID, ChunkView],
    plan: QueryPlan,
    profile: LexicalProfile,
    corpus_size: int,
) -> list[Hit]:
    """Return the hits without foreign ones; all of them in a small corpus."""
    foreign = (
        {hit.chunk_id for hit in find_foreign_hits(hits, chunks, plan)}
        if corpus_size >= profile.foreign_below
        else set()
    )
    return [hit for hit in hits if hit.chunk_id not in foreign]
