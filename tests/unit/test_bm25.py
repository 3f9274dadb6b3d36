"""Candidate selection: rare words alone, frequent ones together, and no winner is missed."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generations import LexicalConfig
from sql.index.bm25 import (
    ROUNDING_ERROR,
    CandidateSet,
    Term,
    choose_candidates,
    estimate_rows,
    find_unseen_conjunctions,
)
from tests.support.repetitions import draw_examples

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
