"""Rank parents over one snapshot: channels → fuse → expand → rerank → fold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from retrieval.bigrams import score_pairs
from retrieval.channels import ChannelCandidates, OnHits, RetrievalRequest, retrieve_candidates
from retrieval.chunk_loader import open_chunk_loader
from retrieval.duplicates import fold_duplicates
from retrieval.fusion import Fusion, FusionInput, fuse_candidates
from retrieval.language_filter import filter_foreign_hits, find_foreign_hits
from retrieval.parent_expansion import RankedParent, expand_to_parents
from retrieval.reranking import RerankResult, rerank_parents
from retrieval.timing import Clock, Stopwatch
from retrieval.token_states import TokenStateReader
from schemas.ports.engines import QueryEmbedding, Reranker
from schemas.ports.search import ChunkView, Hit, IndexSnapshot
from schemas.profiles import Profile
from schemas.questions import Channel

# Limit on deepening a channel, however few documents its candidates belong to.
MAX_CANDIDATES_PER_CHANNEL = 4000


@dataclass(frozen=True, slots=True)
class RankingResources:
    """Dependencies of ranking. Without a reranker the fused order stands."""

    snapshot: IndexSnapshot
    reranker: Reranker | None
    states: TokenStateReader
    clock: Clock
    stopwatch: Stopwatch


@dataclass(frozen=True, slots=True)
class Ranking:
    """Parents, best first, near-duplicates folded. `reranked` is None without a reranker."""

    parents: tuple[RankedParent, ...]
    candidates: ChannelCandidates
    fusion: Fusion
    reranked: RerankResult | None

    @property
    def idf(self) -> Mapping[str, Mapping[str, float]]:
        return self.candidates.lexical.idf if self.candidates.lexical else {}

    @property
    def is_complete(self) -> bool:
        """True when every channel and the reranker succeeded, token states included."""
        return not self.candidates.failed and (self.reranked is None or (self.reranked.is_reranked and not self.reranked.unread_states_count))

    @property
    def notes(self) -> list[str]:
        return list(self.reranked.notes) if self.reranked else []

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number that entered a score, except those of single candidates."""
        rerank_numbers = dict(self.reranked.numbers) if self.reranked else {}
        return {"fusion": dict(self.fusion.numbers), "idf": {name: dict(weights) for name, weights in self.idf.items()}, "rerank": rerank_numbers}


async def rank_parents(
    resources: RankingResources,
    request: RetrievalRequest,
    channels: Sequence[Channel],
    embedding_task: asyncio.Task[QueryEmbedding] | None,
    n_distinct: int,
    depth: int | None = None,
) -> Ranking:
    """Rank parents; at least the first `n_distinct` are not near-duplicates of each other.

    With a `depth`, each channel is queried again with more candidates until it has that many documents or is
    exhausted.
    """
    async with open_chunk_loader(resources.snapshot) as chunk_loader:
        with resources.stopwatch.measure_step("channels"):
            candidates = await _retrieve_to_depth(resources, request, channels, embedding_task, depth, chunk_loader.load_hits)
        with resources.stopwatch.measure_step("chunks"):
            chunks = await chunk_loader.wait_for_chunks()
            candidates = await _filter_by_language(resources.snapshot, request, candidates, chunks)
    with resources.stopwatch.measure_step("fuse"):
        fusion = fuse_candidates(
            FusionInput(candidates.hits, candidates.complete, _score_word_pairs(request, candidates, chunks)), chunks, request.profile.fusion
        )
        parents = expand_to_parents(fusion.candidates, request.profile.rerank.expand)
    if resources.reranker is None or not parents:
        return Ranking(tuple(_fold_parents(parents, request.profile, n_distinct)), candidates, fusion, None)
    with resources.stopwatch.measure_step("rerank"):
        reranked = await rerank_parents(
            parents, request.plan.question, candidates.embedded_query, resources.reranker, resources.snapshot, resources.states, request.profile.rerank
        )
    return Ranking(tuple(_fold_parents(reranked.parents, request.profile, n_distinct)), candidates, fusion, reranked)


async def _retrieve_to_depth(
    resources: RankingResources,
    request: RetrievalRequest,
    channels: Sequence[Channel],
    embedding_task: asyncio.Task[QueryEmbedding] | None,
    depth: int | None,
    on_hits: OnHits,
) -> ChannelCandidates:
    candidates = await retrieve_candidates(resources.snapshot, request, channels, embedding_task, resources.clock, on_hits)
    while depth is not None and (
        shallow_channels := [
            channel for channel in candidates.hits if _is_shallow(candidates, channel, depth) and request.k[channel] < MAX_CANDIDATES_PER_CHANNEL
        ]
    ):
        request = replace(request, k={**request.k, **{channel: min(2 * request.k[channel], MAX_CANDIDATES_PER_CHANNEL) for channel in shallow_channels}})
        candidates = await retrieve_candidates(resources.snapshot, request, channels, embedding_task, resources.clock, on_hits)
    return candidates


def _is_shallow(candidates: ChannelCandidates, channel: Channel, depth: int) -> bool:
    return channel not in candidates.complete and len({hit.document_id for hit in candidates.hits[channel]}) < depth


async def _filter_by_language(
    snapshot: IndexSnapshot, request: RetrievalRequest, candidates: ChannelCandidates, chunks: Mapping[UUID, ChunkView]
) -> ChannelCandidates:
    lexical_hits: Sequence[Hit] = candidates.hits.get("lexical", ())
    # Counting the corpus costs a query: do it only when there is something to filter.
    if not find_foreign_hits(lexical_hits, chunks, request.plan):
        return candidates
    native_hits = filter_foreign_hits(lexical_hits, chunks, request.plan, await snapshot.count_chunks(request.tenant))
    return replace(candidates, hits={**candidates.hits, "lexical": native_hits})


def _score_word_pairs(request: RetrievalRequest, candidates: ChannelCandidates, chunks: Mapping[UUID, ChunkView]) -> dict[UUID, float]:
    if not request.profile.fusion.bigram or candidates.lexical is None:
        return {}
    views = [chunks[hit.chunk_id] for hit in candidates.hits["lexical"] if hit.chunk_id in chunks]
    return score_pairs(request.plan.question, views, candidates.lexical.idf)


def _fold_parents(parents: Sequence[RankedParent], profile: Profile, n_distinct: int) -> Sequence[RankedParent]:
    return fold_duplicates(parents, max(profile.rerank.parents, n_distinct), n_distinct) if profile.fusion.near_duplicates else parents
