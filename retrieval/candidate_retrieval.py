"""Retrieve the candidates of a query from its channels, with their chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from retrieval.bigrams import score_pairs
from retrieval.channels import (
    ChannelCandidates,
    OnHits,
    RetrievalRequest,
    retrieve_candidates,
    start_embedding,
)
from retrieval.chunk_loader import open_chunk_loader
from retrieval.language_filter import filter_foreign_hits, find_foreign_hits
from retrieval.query_context import QueryContext
from retrieval.resources import RetrievalResources
from retrieval.routing import choose_channels
from retrieval.timing import Clock
from schemas.errors import InvalidRequest
from schemas.generations import LexicalConfig
from schemas.ports.engines import QueryEmbedding
from schemas.ports.search import ChunkView, Hit, IndexSnapshot
from schemas.questions import Channel, Route

# Limit on deepening a channel, however few documents its candidates belong to.
MAX_CANDIDATES_PER_CHANNEL = 4000


async def retrieve_chunks(
    query: QueryContext,
    resources: RetrievalResources,
    snapshot: IndexSnapshot,
    route: Route,
    depth: int | None,
) -> tuple[ChannelCandidates, Mapping[UUID, ChunkView]]:
    """Return the candidates of the route's channels, and their chunks.

    With a `depth`, each channel is queried again with more candidates until it has that many
    documents or is exhausted. Raises InvalidRequest when the profile disables every channel.
    """
    channels = choose_channels(route, query.request, query.profile)
    if not channels:
        raise InvalidRequest(
            f"Profile {query.profile.name!r} disables every requested channel.",
            code="NO_CHANNEL",
            remedy="Request other channels, or use another profile.",
        )
    reranker = resources.get_reranker(query.profile)
    is_embedding_needed = "semantic" in channels or (
        reranker is not None and reranker.role == "added"
    )
    request = _build_request(query, depth)
    embedding_task = start_embedding(
        resources.get_embed(query), query.plan.question, is_needed=is_embedding_needed
    )
    try:
        async with open_chunk_loader(snapshot) as chunk_loader:
            with query.stopwatch.measure_step("channels"):
                candidates = await _retrieve_to_depth(
                    snapshot,
                    request,
                    channels,
                    embedding_task,
                    resources.clock,
                    depth,
                    chunk_loader.load_hits,
                )
            with query.stopwatch.measure_step("chunks"):
                chunks = await chunk_loader.wait_for_chunks()
                return await _filter_by_language(snapshot, request, candidates, chunks), chunks
    finally:
        # No task outlives its query. The channel that needed a failed embedding has reported the
        # error.
        if embedding_task is not None:
            embedding_task.cancel()
            await asyncio.gather(embedding_task, return_exceptions=True)


def _build_request(query: QueryContext, depth: int | None) -> RetrievalRequest:
    profile, min_candidates = query.profile, max(depth or 0, query.request.k)
    limits: dict[Channel, int] = {
        "lexical": max(profile.lexical.k, min_candidates),
        "semantic": max(profile.semantic.k, min_candidates),
        "graph": max(profile.graph.k, min_candidates),
    }
    return RetrievalRequest(query.caller.tenant, query.plan, profile, query.request.filters, limits)


async def _retrieve_to_depth(
    snapshot: IndexSnapshot,
    request: RetrievalRequest,
    channels: Sequence[Channel],
    embedding_task: asyncio.Task[QueryEmbedding] | None,
    clock: Clock,
    depth: int | None,
    on_hits: OnHits,
) -> ChannelCandidates:
    candidates = await retrieve_candidates(
        snapshot, request, channels, embedding_task, clock, on_hits
    )
    while depth is not None and (
        shallow_channels := [
            channel
            for channel in candidates.hits
            if _is_shallow(candidates, channel, depth)
            and request.k[channel] < MAX_CANDIDATES_PER_CHANNEL
        ]
    ):
        request = replace(
            request,
            k={
                **request.k,
                **{
                    channel: min(2 * request.k[channel], MAX_CANDIDATES_PER_CHANNEL)
                    for channel in shallow_channels
                },
            },
        )
        candidates = await retrieve_candidates(
            snapshot, request, channels, embedding_task, clock, on_hits
        )
    return candidates


def _is_shallow(candidates: ChannelCandidates, channel: Channel, depth: int) -> bool:
    return (
        channel not in candidates.complete
        and len({hit.document_id for hit in candidates.hits[channel]}) < depth
    )


async def _filter_by_language(
    snapshot: IndexSnapshot,
    request: RetrievalRequest,
    candidates: ChannelCandidates,
    chunks: Mapping[UUID, ChunkView],
) -> ChannelCandidates:
    lexical_hits: Sequence[Hit] = candidates.hits.get("lexical", ())
    # Counting the corpus costs a query: do it only when there is something to filter.
    if not find_foreign_hits(lexical_hits, chunks, request.plan):
        return candidates
    native_hits = filter_foreign_hits(
        lexical_hits, chunks, request.plan, await snapshot.count_chunks(request.tenant)
    )
    return replace(candidates, hits={**candidates.hits, "lexical": native_hits})


def score_word_pairs(
    query: QueryContext,
    candidates: ChannelCandidates,
    chunks: Mapping[UUID, ChunkView],
    config: LexicalConfig,
) -> dict[UUID, float]:
    """Return word-pair scores of the lexical candidates; empty when the profile does not use them."""
    if not query.profile.fusion.bigram or candidates.lexical is None:
        return {}
    views = [chunks[hit.chunk_id] for hit in candidates.hits["lexical"] if hit.chunk_id in chunks]
    return score_pairs(query.plan.question, views, candidates.lexical.idf, config)
