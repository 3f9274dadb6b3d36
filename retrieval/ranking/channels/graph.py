"""Candidates that mention the entities of the question, or entities related to them.

Strategy `pagerank` ranks them by a random walk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from retrieval.ranking.channels import ChannelOutput, ChannelRequest
from retrieval.ranking.channels.graph_server import search_server
from retrieval.ranking.channels.pagerank import rank_chunks
from schemas.channels import GraphProfile
from schemas.ports.search import EntitySeed


async def retrieve(request: ChannelRequest) -> ChannelOutput:
    seeds = weigh_seeds(
        await request.snapshot.link_entities(request.tenant, list(request.names)), request.names
    )
    if not seeds:
        return ChannelOutput(())
    settings = GraphProfile.model_validate(request.settings)
    hops = 0 if settings.strategy == "entity_search" else settings.hops
    min_hops = 1 if settings.strategy == "traversal" else 0
    found = await search_server(request, seeds, hops, min_hops)
    hits = found.hits
    if hits is None and settings.strategy == "pagerank":
        graph = await request.snapshot.fetch_entity_graph(
            request.tenant,
            seeds,
            hops=hops,
            fan_out=settings.fan_out,
            max_mentions=settings.max_mentions,
            filters=request.filters,
        )
        # In a thread: a large graph and a high damping take tens of milliseconds.
        hits = await asyncio.to_thread(rank_chunks, graph, settings.damping, request.k)
    if hits is None:
        hits = await request.snapshot.search_graph(
            request.tenant,
            seeds,
            hops=hops,
            min_hops=min_hops,
            fan_out=settings.fan_out,
            decay=settings.decay,
            max_mentions=settings.max_mentions,
            filters=request.filters,
            k=request.k,
        )
    return ChannelOutput(hits, linked_seeds=seeds, served_by=found.served_by, notes=found.notes)


def weigh_seeds(seeds: Sequence[EntitySeed], names: Mapping[str, float]) -> list[EntitySeed]:
    """Drop names that lie inside a longer linked name.

    The weight of the others is multiplied by that of their spelling in the query.
    """
    keys = {seed.key for seed in seeds}
    # Spaces around both match whole words: `art` does not lie inside `smart`.
    longest_seeds = [
        seed
        for seed in seeds
        if not any(seed.key != key and f" {seed.key} " in f" {key} " for key in keys)
    ]
    return [replace(seed, weight=seed.weight * names.get(seed.key, 1.0)) for seed in longest_seeds]
