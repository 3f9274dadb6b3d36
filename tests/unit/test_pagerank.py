from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from retrieval.ranking.channels.pagerank import compute_pagerank, rank_chunks
from schemas.ports.search import EntityGraph, GraphEdge

ADA, BOB, CYD, *CHUNKS = (UUID(int=number) for number in range(1, 7))
DOCUMENT = UUID(int=99)
WEIGHTED_EDGES = [(0, 1, 0.8), (0, 2, 1.0), (1, 2, 3.0), (1, 3, 1.0)]
RESTART = np.array([0.75, 0.0, 0.0, 0.0, 0.25])


def make_mention(entity_id: UUID, chunk_id: UUID, count: float = 1.0) -> GraphEdge:
    return GraphEdge(entity_id, chunk_id, DOCUMENT, count)


@pytest.mark.parametrize("damping", [0.1, 0.5, 0.95])
def test_masses_solve_the_linear_system(damping: float) -> None:
    starts, ends, weights = (np.array(column) for column in zip(*WEIGHTED_EDGES, strict=True))
    masses = compute_pagerank(starts, ends, weights, 2 * RESTART, damping)
    transitions = np.zeros((5, 5))
    for start, end, weight in WEIGHTED_EDGES:
        transitions[start, end] = transitions[end, start] = weight
    # The last node has no edges: the walk restarts there.
    transitions[4] = RESTART
    transitions /= transitions.sum(axis=1, keepdims=True)
    expected = np.linalg.solve(np.eye(5) - damping * transitions.T, (1 - damping) * RESTART)
    assert masses == pytest.approx(expected, abs=1e-9) and masses.sum() == pytest.approx(1)


def test_chunk_of_both_seeds_ranks_first_and_distant_one_last() -> None:
    both, only, distant = CHUNKS
    edges = [
        GraphEdge(BOB, CYD, None, 0.5),
        *(make_mention(*pair) for pair in ((ADA, both), (BOB, both), (ADA, only), (CYD, distant))),
    ]
    hits = rank_chunks(EntityGraph({ADA: 1.0, BOB: 0.5}, edges), 0.5, 10)
    assert [hit.chunk_id for hit in hits] == [both, only, distant]
    assert {hit.document_id for hit in hits} == {DOCUMENT}
    assert rank_chunks(EntityGraph({ADA: 1.0, BOB: 0.5}, edges), 0.5, 10) == hits
    assert rank_chunks(EntityGraph({ADA: 1.0, BOB: 0.5}, edges), 0.5, 2) == hits[:2]


def test_more_mentions_carry_more_mass_and_ties_are_ordered_by_id() -> None:
    edges = [
        make_mention(ADA, CHUNKS[2]),
        make_mention(ADA, CHUNKS[1]),
        make_mention(ADA, CHUNKS[0], 2.0),
    ]
    hits = rank_chunks(EntityGraph({ADA: 1.0}, edges), 0.5, 10)
    assert [hit.chunk_id for hit in hits] == CHUNKS
    assert hits[0].score == pytest.approx(2 * hits[1].score)


def test_chunk_that_no_seed_leads_to_is_not_found() -> None:
    edges = [make_mention(ADA, CHUNKS[0]), make_mention(BOB, CHUNKS[1])]
    [hit] = rank_chunks(EntityGraph({ADA: 1.0}, edges), 0.5, 10)
    assert hit.chunk_id == CHUNKS[0]


@pytest.mark.parametrize("edges", [[], [GraphEdge(ADA, BOB, None, 1.0)]])
def test_graph_without_chunks_has_no_hits(edges: list[GraphEdge]) -> None:
    assert rank_chunks(EntityGraph({ADA: 1.0}, edges), 0.5, 10) == []
    assert rank_chunks(EntityGraph({}, edges), 0.5, 10) == []
