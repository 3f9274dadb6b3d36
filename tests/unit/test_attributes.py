"""Which attribute a question asks for, and when nothing found speaks of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engines.sentence_splitter import RuleSentenceSplitter
from retrieval.answering.attributes import find_attribute, find_predicate
from retrieval.answering.confidence import assess_evidence, find_missing_predicate
from retrieval.answering.evidence import (
    Evidence,
    Similarities,
    combine_features,
    compare_states,
    compute_selection_features,
)
from retrieval.answering.response_builder import format_missing_codes
from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.ranking.context_packing import ContextPassage
from retrieval.ranking.quote_candidates import extract_quote_candidates
from retrieval.ranking.relevance import RelevanceDecision
from schemas.answer_profiles import AnswerProfile
from tests.unit.retrieval_fakes import (
    GuessedLanguageDetector,
    LowercaseNameFolder,
    locate_words,
    token_states_of,
)
from tests.unit.retrieval_memory_index import make_contexts

HANDBOOK = (
    "# Leave\n\nEvery employee has 27 days of annual leave a year. "
    "Leave is requested in the portal."
)
MACHINE = "The Velora weighs 9 kg and is 31 cm wide."


def plan(question: str, language: str) -> QueryPlan:
    return plan_query(question, language, GuessedLanguageDetector(), LowercaseNameFolder())


def weigh(
    question: str, text: str, language: str, least_similarity: float
) -> tuple[Evidence, list[ContextPassage]]:
    contexts: list[ContextPassage] = list(make_contexts(text))
    candidates = tuple(extract_quote_candidates(contexts, RuleSentenceSplitter()))
    states, token_ids = token_states_of(question)
    compared = compare_states(
        [token_states_of(item.readable_text) for item in candidates],
        states,
        token_ids,
    )
    similarities = Similarities(
        np.maximum(compared.tokens, least_similarity),
        compared.weights,
        compared.reverse,
        locate_words(question),
    )
    features = compute_selection_features(candidates, plan(question, language), similarities)
    return Evidence(candidates, combine_features(features), similarities), contexts


def assess(
    question: str,
    text: str,
    language: str = "en",
    least_similarity: float = -1.0,
    rerank_scores: Sequence[float] = (0.5, 0.45),
) -> RelevanceDecision:
    evidence, contexts = weigh(question, text, language, least_similarity)
    return assess_evidence(
        RelevanceDecision(False, 0.9, 0.5, 0.0, "rules"),
        evidence,
        contexts,
        rerank_scores,
        plan(question, language),
        AnswerProfile(min_confidence=0.0),
    )


@pytest.mark.parametrize(
    ("question", "language", "expected"),
    [
        ("What is the parental leave?", "en", ["parental", "leave"]),
        ("What is the pressure limit of the HX-9?", "en", ["pressure"]),
        ("Quel est le niveau de bruit de la pompe ?", "fr", []),
        ("How many weeks of parental leave are there?", "en", ["parental", "leave"]),
        ("What was the number of employees at the end of 2024?", "en", []),
        ("Which vendor made the disk?", "en", ["vendor"]),
        ("Which foreign branch of Larkfield pays?", "en", ["branch"]),
        ("To how many newton metres are the rods tightened?", "en", ["metres"]),
        ("What happened at noon?", "en", []),
        ("Qual é a área da loja?", "pt", ["área"]),
        ("O que acontece aos livros?", "pt", []),
        ("Quelle est la profondeur du bassin ?", "fr", ["profondeur"]),
        ("¿Cuál es la altura de la torre?", "es", ["altura"]),
        ("Who funded the trial?", "en", ["funded"]),
        ("Quem pintou as portas?", "pt", ["pintou"]),
        ("¿A quién contrató la empresa?", "es", ["contrató"]),
        ("Qui a financé l'étude ?", "fr", ["financé"]),
        # The verb says nothing without its object.
        ("Quem faz a revisão da bomba?", "pt", []),
        ("What happens to a person who passes the card on?", "en", []),
        ("annual leave days", "en", []),
    ],
)
def test_attribute_is_read_from_the_form_of_the_question(
    question: str, language: str, expected: list[str]
) -> None:
    places = find_attribute(question, language)
    assert [question[slice(*place)] for place in places] == expected


@pytest.mark.parametrize(
    ("question", "language", "expected"),
    [
        ("Which applicant is recommended?", "en", "recommended"),
        ("Which paint was sold?", "en", "sold"),
        ("Qual candidato foi escolhido?", "pt", "escolhido"),
        ("¿Qué candidato fue elegido?", "es", "elegido"),
        ("¿Qué casa fue vendida?", "es", "vendida"),
        ("Quel candidat est recommandé ?", "fr", "recommandé"),
        ("Welcher Bewerber wird empfohlen?", "de", "empfohlen"),
        # More is said of it, or nothing.
        ("Which applicant is recommended by the board?", "en", None),
        ("Which applicant is best?", "en", None),
        ("When was the hall painted?", "en", None),
        ("What is the hall painted?", "en", None),
    ],
)
def test_predicate_ends_a_question_of_which_thing(
    question: str, language: str, expected: str | None
) -> None:
    place = find_predicate(question, language)
    assert (question[slice(*place)] if place else None) == expected


PAINTS = "The paint Marin was chosen in May. The paint Delta dries in two hours."


@pytest.mark.parametrize(
    ("question", "similarity", "missing"),
    [
        ("Which paint was sold?", -1.0, ["sold"]),
        ("Which paint was chosen?", -1.0, []),
        # In other words.
        ("Which paint was selected?", 0.5, []),
    ],
)
def test_predicate_that_nothing_says_is_missing(
    question: str, similarity: float, missing: list[str]
) -> None:
    evidence, _ = weigh(question, PAINTS, "en", similarity)
    assert find_missing_predicate(evidence, [PAINTS], plan(question, "en")) == missing


@pytest.mark.parametrize(
    ("question", "text", "missing"),
    [
        ("What is the parental leave of an employee?", HANDBOOK, ("parental leave",)),
        ("Which colour has the Velora?", MACHINE, ("colour",)),
        ("Who funded the trial?", "The trial was led by Henrike Aldous.", ("funded",)),
    ],
)
def test_attribute_that_nothing_speaks_of_is_refused(
    question: str, text: str, missing: tuple[str, ...]
) -> None:
    decision = assess(question, text)
    assert decision.refused and decision.missing_terms == missing


@pytest.mark.parametrize(
    ("question", "text", "language"),
    [
        ("What is the annual leave of an employee?", HANDBOOK, "en"),
        # Nothing of the question is held: a paraphrase, which the probability judges.
        ("What is the vacation entitlement?", HANDBOOK, "en"),
        # The text is in another language than the question.
        ("Qual é a licença de um employee?", HANDBOOK, "pt"),
    ],
)
def test_held_paraphrased_and_foreign_attributes_are_not_missed(
    question: str, text: str, language: str
) -> None:
    assert not assess(question, text, language).missing_terms


def test_missing_attribute_overrules_no_sure_estimate() -> None:
    question = "Which colour has the Velora?"
    assert not assess(question, MACHINE, rerank_scores=(0.9, 0.1)).refused


def test_attribute_that_states_support_is_not_missed() -> None:
    text = "The systolic pressure of the patient was 120 mmHg."
    question = "What is the arterial pressure of the patient?"
    assert assess(question, text).refused
    assert not assess(question, text, least_similarity=0.8).refused


def test_refusal_says_what_the_passages_speak_of() -> None:
    decision = assess("What is the parental leave of an employee?", HANDBOOK)
    (message,) = format_missing_codes(decision, "en")
    assert message == "The passages found mention Leave, not parental leave."
