"""Rules of refusal: each number of the profile moves the decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retrieval.candidate_retrieval import ChannelCandidates
from retrieval.parent_expansion import RankedParent
from retrieval.query_plan import QueryPlan, plan_query
from retrieval.relevance import RelevanceDecision, check_relevance, rate_confidence
from schemas.answer_profiles import AnswerProfile
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


def check(parents: list[RankedParent]) -> RelevanceDecision:
    reranker = WordReranker(threshold=0.5) if parents[0].rerank_score is not None else None
    return check_relevance(parents, plan(), IDF, reranker, None, AnswerProfile())


def test_missing_words_raise_the_threshold() -> None:
    [parent] = make_parents(("pump", 0.6))
    # By 0.15 at most.
    assert check([parent]).threshold == pytest.approx(0.5 + 0.15)
    chunk = replace(parent.best.chunk, positions=dict.fromkeys(IDF["english"], (1,)))
    full = replace(parent, best=replace(parent.best, chunk=chunk))
    assert check([full]).threshold == pytest.approx(0.5 - 0.5 * 0.25)


def test_threshold_of_foreign_passage_is_lower() -> None:
    [parent] = make_parents(("bomba", 0.6))
    chunk = replace(parent.best.chunk, language="pt")
    foreign = replace(parent, best=replace(parent.best, chunk=chunk))
    assert check([foreign]).threshold == pytest.approx(0.5 * 0.85)


@pytest.mark.parametrize(("others", "is_refused"), [(3, True), (2, False)])
def test_only_the_best_passages_are_judged(others: int, is_refused: bool) -> None:
    parents = make_parents(*[("pump", 0.1)] * others, ("warranty months pump", 0.9))
    assert check(parents).refused is is_refused


@pytest.mark.parametrize(("text", "is_refused"), [("pump", False), ("lamp", True)])
def test_coverage_decides_without_reranker(text: str, is_refused: bool) -> None:
    assert check(make_parents((text, None))).refused is is_refused


@pytest.mark.parametrize(("best", "level"), [(0.61, "high"), (0.59, "low")])
def test_score_far_above_the_threshold_is_confident(best: float, level: str) -> None:
    relevance = RelevanceDecision(False, best, 0.5, 0.0, "rules")
    contexts = make_contexts("pump", "warranty")
    candidates = ChannelCandidates({}, {}, {}, frozenset(), None, (), None)
    confidence = rate_confidence(relevance, contexts, candidates)
    assert confidence.level == level
