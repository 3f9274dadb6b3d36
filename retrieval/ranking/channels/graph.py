"""Candidates that mention the entities of the question, or entities related to them.

Strategy `pagerank` ranks them by personalized PageRank: a random walk over entities and chunks that
restarts at the question's entities (Haveliwala 2002, Topic-sensitive PageRank; over entities and
passages as in HippoRAG, Gutiérrez et al. 2024, arXiv:2405.14831).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from retrieval.ranking.channels import ChannelOutput, ChannelRequest
from retrieval.ranking.channels.graph_server import search_server
from schemas.channels import GraphProfile
from schemas.ports.search import EntityGraph, EntitySeed, GraphWalk, Hit


async def retrieve(request: ChannelRequest) -> ChannelOutput:
    seeds = weigh_seeds(
        await request.snapshot.link_entities(request.tenant, list(request.names)), request.names
    )
    if not seeds:
        return ChannelOutput(())
    settings = GraphProfile.model_validate(request.settings)
    hops = 0 if settings.strategy == "entity_search" else settings.hops
    min_hops = 1 if settings.strategy == "traversal" else 0
    walk = GraphWalk(hops, settings.fan_out, settings.decay, min_hops)
    found = await search_server(request, seeds, hops, min_hops)
    hits = found.hits
    if hits is None and settings.strategy == "pagerank":
        graph = await request.snapshot.fetch_entity_graph(
            request.tenant, seeds, walk, filters=request.filters
        )
        # In a thread: a large graph takes tens of milliseconds.
        hits = await asyncio.to_thread(rank_chunks, graph, request.k)
    if hits is None:
        hits = await request.snapshot.search_graph(
            request.tenant, seeds, walk, filters=request.filters, k=request.k
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


DAMPING = 0.5
"""Probability of following an edge instead of restarting."""
TOLERANCE = 1e-9
"""Share of the mass that may be at another node than after endless iteration."""

Indexes = NDArray[np.intp]
Masses = NDArray[np.float64]


def rank_chunks(graph: EntityGraph, k: int) -> list[Hit]:
    """Return the `k` chunks with most of the walk's mass, which is 1 over all nodes."""
    nodes = dict.fromkeys(graph.seeds)
    nodes |= dict.fromkeys(node for edge in graph.edges for node in (edge.entity_id, edge.node_id))
    places = {node: place for place, node in enumerate(nodes)}
    document_ids = {
        edge.node_id: edge.document_id for edge in graph.edges if edge.document_id is not None
    }
    if not document_ids:
        return []
    restart = np.zeros(len(places))
    for entity_id, weight in graph.seeds.items():
        restart[places[entity_id]] = weight
    masses = compute_pagerank(
        np.array([places[edge.entity_id] for edge in graph.edges], np.intp),
        np.array([places[edge.node_id] for edge in graph.edges], np.intp),
        np.array([edge.weight for edge in graph.edges], np.float64),
        restart,
    )
    hits = [
        Hit(chunk_id, document_id, float(masses[places[chunk_id]]))
        for chunk_id, document_id in document_ids.items()
    ]
    # A chunk without mass is connected to no seed.
    return sorted(
        (hit for hit in hits if hit.score > 0), key=lambda hit: (-hit.score, hit.chunk_id)
    )[:k]


def compute_pagerank(starts: Indexes, ends: Indexes, weights: Masses, restart: Masses) -> Masses:
    """Return the stationary mass of each node.

    With probability DAMPING the walk follows an edge, in either direction and in proportion to
    its weight; else it restarts at a node in proportion to `restart`, as it does at a node without
    edges.
    """
    sources, targets = np.concatenate([starts, ends]), np.concatenate([ends, starts])
    weights = np.concatenate([weights, weights])
    n_nodes = len(restart)
    totals = np.bincount(sources, weights, n_nodes)
    shares = DAMPING * weights / totals[sources]
    restart = restart / restart.sum()
    masses = restart
    # Each iteration multiplies the error by at most DAMPING.
    for _ in range(math.ceil(math.log(TOLERANCE / 2, DAMPING))):
        spread = np.bincount(targets, masses[sources] * shares, n_nodes)
        masses = spread + (1 - spread.sum()) * restart
    return masses
