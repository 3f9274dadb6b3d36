"""Rules of refusal: each number moves the decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.passages import RankedParent
from retrieval.ranking.relevance import (
    RelevanceDecision,
    check_relevance,
    lower_confidence,
    rate_confidence,
)
from schemas.answer_profiles import AnswerProfile
from schemas.questions import Confidence
from tests.unit.retrieval_fakes import GuessedLanguageDetector, WordReranker
from tests.unit.retrieval_memory_index import make_contexts

QUESTION = "seal rotor pump"
LONG_QUESTION = "seal rotor pump bolt gasket shaft motor disc"
IDF = {"english": dict.fromkeys(LONG_QUESTION.split(), 1.0)}


def plan(question: str = QUESTION) -> QueryPlan:
    return plan_query(question, "en", GuessedLanguageDetector())


def make_parents(*scored_texts: tuple[str, float | None]) -> list[RankedParent]:
    contexts = make_contexts(*(text for text, _ in scored_texts))
    return [
        replace(context.parent, rerank_score=score)
        for context, (_, score) in zip(contexts, scored_texts, strict=True)
    ]


def check(parents: list[RankedParent], question: str = QUESTION) -> RelevanceDecision:
    reranker = WordReranker(threshold=0.5) if parents[0].rerank_score is not None else None
    return check_relevance(parents, plan(question), IDF, reranker, None, AnswerProfile())


@pytest.mark.parametrize(
    ("question", "text", "threshold"),
    [
        # Shares of the words: all, two thirds, and a third, which raises it no more than .15.
        (QUESTION, QUESTION, 0.5 + 0.5 * (0.75 - 1)),
        (QUESTION, "seal rotor", 0.5 + 0.5 * (0.75 - 2 / 3)),
        (QUESTION, "pump", 0.5 + 0.15),
        # Eight words, twice as many as are few.
        (LONG_QUESTION, LONG_QUESTION, 0.5 + 0.25 * (0.75 - 1)),
    ],
)
def test_missing_words_move_the_threshold(question: str, text: str, threshold: float) -> None:
    decision = check(make_parents((text, 0.6)), question)
    assert decision.threshold == pytest.approx(threshold)


def test_threshold_of_foreign_passage_is_lower() -> None:
    [parent] = make_parents(("bomba", 0.6))
    chunk = replace(parent.best.chunk, language="pt")
    foreign = replace(parent, best=replace(parent.best, chunk=chunk))
    assert check([foreign]).threshold == pytest.approx(0.5 * 0.85)


@pytest.mark.parametrize(("n_weak", "is_refused"), [(2, False), (3, True)])
def test_only_the_best_three_passages_are_judged(n_weak: int, is_refused: bool) -> None:
    parents = make_parents(*[("pump", 0.1)] * n_weak, (QUESTION, 0.9))
    assert check(parents).refused is is_refused


@pytest.mark.parametrize(("question", "is_refused"), [(QUESTION, False), (LONG_QUESTION, True)])
def test_a_quarter_of_the_words_is_enough_without_reranker(question: str, is_refused: bool) -> None:
    decision = check(make_parents(("pump", None)), question)
    assert decision.refused is is_refused and decision.threshold == 0.25


@pytest.mark.parametrize(("best", "level"), [(0.61, "high"), (0.59, "low")])
def test_clear_match_separates_high_from_low_confidence(best: float, level: str) -> None:
    relevance = RelevanceDecision(False, best, 0.5, 0.0, "rules")
    contexts = make_contexts("pump", "seal")
    candidates = ChannelCandidates({}, {}, {}, frozenset(), None, (), None)
    assert rate_confidence(relevance, contexts, candidates).level == level


def test_score_follows_level_and_within_it_probability() -> None:
    levels: tuple[Literal["low", "medium", "high"], ...] = ("low", "medium", "high")
    ordered = [
        Confidence(level=level, reasons=[], probability=probability)
        for level in levels
        for probability in (0.1, None, 0.9)
    ]
    assert [answer.score for answer in ordered] == sorted({answer.score for answer in ordered})
    # A disagreement moves the same probability a level down.
    assert lower_confidence(ordered[8], "the documents disagree").score == ordered[5].score
    stored = ordered[8].model_dump(mode="json")
    assert Confidence.model_validate(stored) == ordered[8]
    del stored["score"]  # as in responses that were recorded without one
    assert Confidence.model_validate(stored) == ordered[8]
