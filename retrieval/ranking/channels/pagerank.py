"""Personalized PageRank: a random walk over entities and chunks that restarts at the question's
entities.

Haveliwala 2002, Topic-sensitive PageRank; over entities and passages as in HippoRAG (Gutiérrez et
al. 2024, arXiv:2405.14831). `graph` calls it for strategy `pagerank`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from schemas.ports.search import EntityGraph, Hit

TOLERANCE = 1e-9
"""Share of the mass that may be at another node than after endless iteration."""

Indexes = NDArray[np.intp]
Masses = NDArray[np.float64]


def rank_chunks(graph: EntityGraph, damping: float, k: int) -> list[Hit]:
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
        damping,
    )
    hits = [
        Hit(chunk_id, document_id, float(masses[places[chunk_id]]))
        for chunk_id, document_id in document_ids.items()
    ]
    # A chunk without mass is connected to no seed.
    return sorted(
        (hit for hit in hits if hit.score > 0), key=lambda hit: (-hit.score, hit.chunk_id)
    )[:k]


def compute_pagerank(
    starts: Indexes, ends: Indexes, weights: Masses, restart: Masses, damping: float
) -> Masses:
    """Return the stationary mass of each node.

    With probability `damping` the walk follows an edge, in either direction and in proportion to
    its weight; else it restarts at a node in proportion to `restart`, as it does at a node without
    edges.
    """
    sources, targets = np.concatenate([starts, ends]), np.concatenate([ends, starts])
    weights = np.concatenate([weights, weights])
    n_nodes = len(restart)
    totals = np.bincount(sources, weights, n_nodes)
    shares = damping * weights / totals[sources]
    restart = restart / restart.sum()
    masses = restart
    # Each iteration multiplies the error by at most `damping`.
    for _ in range(math.ceil(math.log(TOLERANCE / 2, damping))):
        spread = np.bincount(targets, masses[sources] * shares, n_nodes)
        masses = spread + (1 - spread.sum()) * restart
    return masses
