"""Candidate selection: rare words alone, frequent ones together, and no winner is missed."""

from __future__ import annotations

import random
from itertools import combinations
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ranking.channels.graph import DAMPING, compute_pagerank, rank_chunks
from schemas.generations import LexicalConfig
from schemas.ports.search import EntityGraph, GraphEdge
from sql.index.lexical import (
    ROUNDING_ERROR,
    CandidateSet,
    Term,
    choose_candidates,
    estimate_rows,
    find_unseen_conjunctions,
)
from sql.index.snapshot import LexemePositions
from tests.support.repetitions import draw_examples

ADA, BOB, CYD, *CHUNKS = (UUID(int=number) for number in range(1, 7))
DOCUMENT = UUID(int=99)
WEIGHTED_EDGES = [(0, 1, 0.8), (0, 2, 1.0), (1, 2, 3.0), (1, 3, 1.0)]
RESTART = np.array([0.75, 0.0, 0.0, 0.0, 0.25])


def make_mention(entity_id: UUID, chunk_id: UUID, count: float = 1.0) -> GraphEdge:
    return GraphEdge(entity_id, chunk_id, DOCUMENT, count)


def test_masses_solve_the_linear_system() -> None:
    starts, ends, weights = (np.array(column) for column in zip(*WEIGHTED_EDGES, strict=True))
    masses = compute_pagerank(starts, ends, weights, 2 * RESTART)
    transitions = np.zeros((5, 5))
    for start, end, weight in WEIGHTED_EDGES:
        transitions[start, end] = transitions[end, start] = weight
    # The last node has no edges: the walk restarts there.
    transitions[4] = RESTART
    transitions /= transitions.sum(axis=1, keepdims=True)
    expected = np.linalg.solve(np.eye(5) - DAMPING * transitions.T, (1 - DAMPING) * RESTART)
    assert masses == pytest.approx(expected, abs=1e-9) and masses.sum() == pytest.approx(1)


def test_chunk_of_both_seeds_ranks_first_and_distant_one_last() -> None:
    both, only, distant = CHUNKS
    edges = [
        GraphEdge(BOB, CYD, None, 0.5),
        *(make_mention(*pair) for pair in ((ADA, both), (BOB, both), (ADA, only), (CYD, distant))),
    ]
    hits = rank_chunks(EntityGraph({ADA: 1.0, BOB: 0.5}, edges), 10)
    assert [hit.chunk_id for hit in hits] == [both, only, distant]
    assert {hit.document_id for hit in hits} == {DOCUMENT}
    assert rank_chunks(EntityGraph({ADA: 1.0, BOB: 0.5}, edges), 10) == hits
    assert rank_chunks(EntityGraph({ADA: 1.0, BOB: 0.5}, edges), 2) == hits[:2]


def test_more_mentions_carry_more_mass_and_ties_are_ordered_by_id() -> None:
    edges = [
        make_mention(ADA, CHUNKS[2]),
        make_mention(ADA, CHUNKS[1]),
        make_mention(ADA, CHUNKS[0], 2.0),
    ]
    hits = rank_chunks(EntityGraph({ADA: 1.0}, edges), 10)
    assert [hit.chunk_id for hit in hits] == CHUNKS
    assert hits[0].score == pytest.approx(2 * hits[1].score)


def test_chunk_that_no_seed_leads_to_is_not_found() -> None:
    edges = [make_mention(ADA, CHUNKS[0]), make_mention(BOB, CHUNKS[1])]
    [hit] = rank_chunks(EntityGraph({ADA: 1.0}, edges), 10)
    assert hit.chunk_id == CHUNKS[0]


@pytest.mark.parametrize("edges", [[], [GraphEdge(ADA, BOB, None, 1.0)]])
def test_graph_without_chunks_has_no_hits(edges: list[GraphEdge]) -> None:
    assert rank_chunks(EntityGraph({ADA: 1.0}, edges), 10) == []
    assert rank_chunks(EntityGraph({}, edges), 10) == []


ChunkTerms = list[frozenset[str]]


def make_terms(chunks: ChunkTerms, words: str) -> list[Term]:
    return [
        Term("simple", word, sum(word in chunk for chunk in chunks), len(chunks)) for word in words
    ]


def test_all_terms_are_scored_when_budget_covers_corpus() -> None:
    terms = [Term("english", word, df, 1000) for word, df in (("a", 900), ("b", 800), ("c", 3))]
    assert {term.lexeme for [term] in choose_candidates(terms, 1000).conjunctions} == {
        "a",
        "b",
        "c",
    }


def test_rarest_term_is_selected_and_unknown_terms_are_not() -> None:
    chosen = choose_candidates(
        [Term("english", "common", 900, 1000), Term("english", "unknown", 0, 1000)], 10
    )
    assert [[term.lexeme for term in conjunction] for conjunction in chosen.conjunctions] == [
        ["common"]
    ]


def test_frequent_terms_are_selected_as_conjunctions_within_budget() -> None:
    terms = [Term("english", "rare", 10, 10_000)] + [
        Term("english", f"w{n}", 2000, 10_000) for n in range(4)
    ]
    chosen = choose_candidates(terms, 500)
    assert chosen.conjunctions[0][0].lexeme == "rare"
    assert (
        all(2 <= len(conjunction) <= 4 for conjunction in chosen.conjunctions[1:])
        and len(chosen.conjunctions) > 1
    )
    assert chosen.estimated_rows <= 500


def test_conjunction_containing_another_is_dropped() -> None:
    chosen = choose_candidates(
        [Term("english", "rare", 1, 1000)]
        + [Term("english", f"w{n}", 300, 1000) for n in range(4)],
        900,
    )
    sets = [frozenset(conjunction) for conjunction in chosen.conjunctions]
    assert not any(one < other for one, other in combinations(sets, 2)) and not any(
        other < one for one, other in combinations(sets, 2)
    )


def test_each_text_search_config_gets_its_quoted_query() -> None:
    chosen = choose_candidates([Term("english", "it's", 1, 10), Term("simple", "a\\b", 1, 10)], 10)
    assert chosen.to_tsqueries() == {"english": "'it''s'", "simple": "'a\\\\b'"}


def test_expected_rows_multiplies_document_frequencies() -> None:
    assert estimate_rows((Term("c", "a", 50, 100), Term("c", "b", 20, 100))) == pytest.approx(10)


@draw_examples(200)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 60), st.floats(0.1, 20))
def test_unseen_chunk_cannot_reach_winning_score(
    seed: int, words: int, budget: int, least: float
) -> None:
    """A chunk not selected cannot reach `least`, even at the maximum weight of its words."""
    rng = random.Random(seed)
    vocabulary = "abcdefgh"[:words]
    chunks = [
        frozenset(
            word
            for place, word in enumerate(vocabulary)
            if rng.random() < (place + 1) / (words + 1)
        )
        for _ in range(60)
    ]
    terms = make_terms(chunks, vocabulary)
    candidates = choose_candidates(terms, budget)
    unseen_conjunctions = find_unseen_conjunctions(terms, candidates, least, LexicalConfig())
    assert unseen_conjunctions is not None
    for chunk in chunks:
        matching_terms = {term for term in terms if term.lexeme in chunk}
        if (
            sum((LexicalConfig().max_weight + ROUNDING_ERROR) * term.idf for term in matching_terms)
            >= least
            and matching_terms
        ):
            assert candidates.covers(matching_terms) or any(
                matching_terms.issuperset(conjunction) for conjunction in unseen_conjunctions
            )


def test_bound_is_abandoned_for_very_many_frequent_terms() -> None:
    terms = [Term("english", f"w{n}", 500 + n, 1000) for n in range(60)]
    assert find_unseen_conjunctions(terms, CandidateSet(), 20.0, LexicalConfig()) is None


# Lexemes and positions parsed from a printed tsvector.

TSVECTOR = r"'''quot':3 'a\\b':2,9A 'heron':1,4 'x y':7"


def test_partial_lexeme_is_not_found() -> None:
    words = LexemePositions(TSVECTOR)
    assert "her" not in words and "quot" not in words and "y" not in words
    with pytest.raises(KeyError):
        words["eron"]


def test_all_lexemes_are_iterated_once() -> None:
    assert dict(LexemePositions(TSVECTOR)) == {
        "'quot": [3],
        "a\\b": [2, 9],
        "heron": [1, 4],
        "x y": [7],
    }
    assert len(LexemePositions("")) == 0
