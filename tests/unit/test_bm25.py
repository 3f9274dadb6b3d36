"""Which chunks are scored: rare words alone, frequent ones together, and never a winner left out unsaid."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql.bm25 import HEAVIEST, Candidates, Term, choose, expected_rows, unseen

Chunks = list[frozenset[str]]


def terms_of(chunks: Chunks, words: str) -> list[Term]:
    return [Term("simple", word, sum(word in chunk for chunk in chunks), len(chunks)) for word in words]


def test_everything_is_scored_when_the_budget_is_the_whole_corpus() -> None:
    terms = [Term("english", word, df, 1000) for word, df in (("a", 900), ("b", 800), ("c", 3))]
    assert {term.lexeme for [term] in choose(terms, 1000).conjunctions} == {"a", "b", "c"}


def test_the_rarest_word_is_always_taken_and_unknown_ones_never() -> None:
    chosen = choose([Term("english", "common", 900, 1000), Term("english", "unknown", 0, 1000)], 10)
    assert [[term.lexeme for term in conjunction] for conjunction in chosen.conjunctions] == [["common"]]


def test_frequent_words_enter_together_within_the_budget() -> None:
    terms = [Term("english", "rare", 10, 10_000)] + [Term("english", f"w{n}", 2000, 10_000) for n in range(4)]
    chosen = choose(terms, 500)
    assert chosen.conjunctions[0][0].lexeme == "rare"
    assert all(2 <= len(conjunction) <= 4 for conjunction in chosen.conjunctions[1:]) and len(chosen.conjunctions) > 1
    assert chosen.rows <= 500


def test_a_conjunction_that_holds_another_is_left_out() -> None:
    chosen = choose([Term("english", "rare", 1, 1000)] + [Term("english", f"w{n}", 300, 1000) for n in range(4)], 900)
    sets = [frozenset(conjunction) for conjunction in chosen.conjunctions]
    assert not any(one < other for one, other in combinations(sets, 2)) and not any(other < one for one, other in combinations(sets, 2))


def test_each_configuration_gets_a_query_of_its_own_with_quoted_words() -> None:
    chosen = choose([Term("english", "it's", 1, 10), Term("simple", "a\\b", 1, 10)], 10)
    assert chosen.queries() == {"english": "'it''s'", "simple": "'a\\\\b'"}


def test_independent_words_share_rows_by_the_product_of_their_shares() -> None:
    assert expected_rows((Term("c", "a", 50, 100), Term("c", "b", 20, 100))) == pytest.approx(10)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 60), st.floats(0.1, 20))
def test_a_chunk_that_could_win_is_seen_or_asked_for(seed: int, words: int, budget: int, least: float) -> None:
    """Whatever is left unasked cannot reach `least`, even if each of its words weighed the most that a word can."""
    rng = random.Random(seed)
    vocabulary = "abcdefgh"[:words]
    chunks = [frozenset(word for place, word in enumerate(vocabulary) if rng.random() < (place + 1) / (words + 1)) for _ in range(60)]
    terms = terms_of(chunks, vocabulary)
    seen = choose(terms, budget)
    left = unseen(terms, seen, least)
    assert left is not None
    for chunk in chunks:
        held = {term for term in terms if term.lexeme in chunk}
        if sum(HEAVIEST * term.idf for term in held) >= least and held:
            assert seen.holds(held) or any(held.issuperset(conjunction) for conjunction in left)


def test_a_question_of_very_many_frequent_words_gives_up_its_bound_rather_than_its_time() -> None:
    terms = [Term("english", f"w{n}", 500 + n, 1000) for n in range(60)]
    assert unseen(terms, Candidates(), 20.0) is None
