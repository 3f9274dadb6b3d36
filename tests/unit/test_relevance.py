"""Rules of refusal: each number of the profile moves the decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.parent_expansion import RankedParent
from retrieval.ranking.relevance import RelevanceDecision, check_relevance, rate_confidence
from schemas.answer_profiles import AnswerProfile, RelevanceProfile
from tests.unit.retrieval_fakes import GuessedLanguageDetector, LowercaseNameFolder, WordReranker
from tests.unit.retrieval_memory_index import make_contexts

QUESTION = "warranty months pump"
IDF = {"english": {"warranty": 1.0, "months": 1.0, "pump": 1.0}}


def plan(question: str = QUESTION) -> QueryPlan:
    return plan_query(question, "en", GuessedLanguageDetector(), LowercaseNameFolder())


def make_parents(*scored_texts: tuple[str, float | None]) -> list[RankedParent]:
    contexts = make_contexts(*(text for text, _ in scored_texts))
    return [
        replace(context.parent, rerank_score=score)
        for context, (_, score) in zip(contexts, scored_texts, strict=True)
    ]


def check(parents: list[RankedParent], rules: RelevanceProfile) -> RelevanceDecision:
    reranker = WordReranker(threshold=0.5) if parents[0].rerank_score is not None else None
    return check_relevance(parents, plan(), IDF, reranker, None, AnswerProfile(relevance=rules))


@pytest.mark.parametrize(
    ("rules", "threshold"),
    [
        # The passage holds one of three words: coverage 1/3.
        ({"max_rise": 1.0}, 0.5 + 0.5 * (0.75 - 1 / 3)),
        ({}, 0.5 + 0.15),
        ({"max_rise": 0.0}, 0.5),
        ({"word_weight": 0.0}, 0.5),
        ({"max_rise": 1.0, "word_weight": 1.0}, 0.5 + (0.75 - 1 / 3)),
        ({"max_rise": 1.0, "usual_coverage": 0.25}, 0.5 + 0.5 * (0.25 - 1 / 3)),
        ({"max_rise": 1.0, "few_keywords": 1}, 0.5 + 0.5 / 3 * (0.75 - 1 / 3)),
    ],
)
def test_missing_words_move_the_threshold_by_the_profile(
    rules: dict[str, float], threshold: float
) -> None:
    decision = check(make_parents(("pump", 0.6)), RelevanceProfile.model_validate(rules))
    assert decision.threshold == pytest.approx(threshold)


@pytest.mark.parametrize("factor", [0.5, 0.85, 1.0])
def test_threshold_of_foreign_passage_is_the_profile_s_share(factor: float) -> None:
    [parent] = make_parents(("bomba", 0.6))
    chunk = replace(parent.best.chunk, language="pt")
    foreign = replace(parent, best=replace(parent.best, chunk=chunk))
    decision = check([foreign], RelevanceProfile(foreign_factor=factor))
    assert decision.threshold == pytest.approx(0.5 * factor)


@pytest.mark.parametrize(("passages", "is_refused"), [(1, True), (2, False)])
def test_only_the_profile_s_number_of_passages_is_judged(passages: int, is_refused: bool) -> None:
    parents = make_parents(("pump", 0.1), ("warranty months pump", 0.9))
    assert check(parents, RelevanceProfile(passages=passages)).refused is is_refused


@pytest.mark.parametrize(("min_coverage", "is_refused"), [(0.3, False), (0.4, True)])
def test_coverage_without_reranker_is_compared_with_the_profile_s(
    min_coverage: float, is_refused: bool
) -> None:
    decision = check(make_parents(("pump", None)), RelevanceProfile(min_coverage=min_coverage))
    assert decision.refused is is_refused and decision.threshold == min_coverage


@pytest.mark.parametrize(("factor", "level"), [(1.2, "high"), (2.0, "low")])
def test_clear_factor_separates_high_from_low_confidence(factor: float, level: str) -> None:
    relevance = RelevanceDecision(False, 0.7, 0.5, 0.0, "rules")
    contexts = make_contexts("pump", "warranty")
    candidates = ChannelCandidates({}, {}, {}, frozenset(), None, (), None)
    confidence = rate_confidence(
        relevance, contexts, candidates, RelevanceProfile(clear_factor=factor)
    )
    assert confidence.level == level
