"""The golden questions over the sample documents: well-formed, and routed right by the rules."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from engines.extract.rules import extract_by_rules
from engines.language import FastTextLanguageDetector
from evaluation.answers_eval import AnswerQuestion, contains, normalize_text, read_answers_set
from retrieval.question.query_plan import plan_query
from retrieval.ranking.planning import choose_route
from schemas.planning import RouteProfile
from schemas.questions import Filters, RouteMode, SearchRequest
from tests.fakes.chunks import make_parent

SAMPLES = Path(__file__).parents[2] / "samples"
MIN_ROUTING_ACCURACY = 0.9


@cache
def load_questions() -> tuple[AnswerQuestion, ...]:
    return tuple(read_answers_set(SAMPLES / "golden")[1])


@cache
def read_document(name: str) -> str:
    """Return the text that the document was made from."""
    source = SAMPLES / "source" / f"{Path(name).stem}.md"
    path = source if source.exists() else SAMPLES / "corpus" / name
    text = path.read_text(encoding="utf-8")
    return text.replace(",", " | ") if path.suffix == ".csv" else text


@cache
def list_entity_keys() -> frozenset[str]:
    """Return the names that the extractor finds in the sample documents."""
    files, _ = read_answers_set(SAMPLES / "golden")
    texts = [read_document(file.external_id) for file in files]
    found = extract_by_rules([make_parent(text) for text in texts])
    return frozenset(mention.key for mention in found.mentions)


def route_by_rules(question: AnswerQuestion, profile: RouteProfile) -> RouteMode:
    plan = plan_query(question.question, None, FastTextLanguageDetector(), filters=Filters())
    is_named = not list_entity_keys().isdisjoint(plan.names)
    request = SearchRequest(query=question.question)
    return choose_route(request, plan, profile, is_named=is_named).route.mode


def measure_routing(profile: RouteProfile) -> float:
    questions = load_questions()
    right = sum(route_by_rules(question, profile) == question.mode for question in questions)
    return right / len(questions)


def test_there_are_sixty_questions_in_four_categories() -> None:
    questions = load_questions()
    kinds = Counter(question.kind for question in questions)
    assert len(questions) >= 60 and len({question.id for question in questions}) == len(questions)
    assert kinds.keys() == {"factoid", "relation", "comparison", "scenario"}
    assert min(kinds.values()) >= 10 and all(question.mode for question in questions)


@pytest.mark.parametrize("question", load_questions(), ids=lambda question: question.id)
def test_spans_and_gold_stand_in_their_documents(question: AnswerQuestion) -> None:
    assert question.spans
    for span in question.spans:
        assert span.document in question.documents
        assert contains(normalize_text(read_document(span.document)), span.quote)
    texts = " ".join(normalize_text(read_document(name)) for name in question.documents)
    assert any(contains(texts, gold) for gold in question.gold)


def test_routing_accuracy_of_the_rules_is_above_the_floor() -> None:
    assert measure_routing(RouteProfile()) >= MIN_ROUTING_ACCURACY


def test_floor_fails_without_the_rule_for_single_facts() -> None:
    assert measure_routing(RouteProfile(vector=False)) < MIN_ROUTING_ACCURACY
