"""The person whom a question names as a reference is never its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from retrieval.answering.confidence import assess_evidence
from retrieval.answering.evidence import (
    Evidence,
    combine_features,
    compare_states,
    compute_overlaps,
    compute_selection_features,
    find_language_shifts,
)
from retrieval.answering.extractive_answer import mark_value, select_quotes
from retrieval.answering.response_builder import format_missing_codes
from retrieval.answering.row_ranking import demote_rows, find_reference
from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.ranking.passages import ContextPassage
from retrieval.ranking.quote_candidates import extract_quote_candidates
from retrieval.ranking.relevance import RelevanceDecision
from retrieval.redaction import Redactor
from schemas.answer_profiles import AnswerProfile
from tests.unit.retrieval_fakes import (
    GuessedLanguageDetector,
    token_states_of,
)
from tests.unit.retrieval_memory_index import make_contexts

CHAIRS = (
    "The club was founded in 1961. Tomas Reis was chair from 1998 to 2009. "
    "Ines Falk was chair from 2009 to 2016. Since 2016 Per Lund has been chair."
)
CADEIRAS = (
    "Rui Costa presidiu ao clube de 1998 a 2009. Ana Lima presidiu ao clube de 2009 a 2016. "
    "Desde 2016 preside Eva Reis."
)
PUMPS = "| Pump | Flow |\n| --- | --- |\n| P11 | 40 l/s |\n| P12 | 55 l/s |\n| P13 | 61 l/s |\n"
SAMPLES = "| Metal | S-1 | S-2 |\n| Lead | 4.1 | 9.2 |\n| Nickel | 3.0 | 19.4 |\n"
SMOKING = "Smoking is not allowed on deck. Smoking is allowed in the yard. Dogs stay in the yard."


@pytest.mark.parametrize(
    ("text", "question", "kept"),
    [
        (CHAIRS, "Who was chair before Ines Falk?", ["1961", "Tomas Reis"]),
        (CHAIRS, "Who was chair after Ines Falk?", ["1961", "Per Lund"]),
        (CHAIRS, "Who preceded Ines Falk as chair?", ["1961", "Tomas Reis"]),
        (CHAIRS, "Who succeeded Tomas Reis?", ["1961", "Ines Falk", "Per Lund"]),
        (CADEIRAS, "Quem presidiu ao clube antes de Ana Lima?", ["Rui Costa"]),
        (CADEIRAS, "Quem presidiu ao clube depois de Ana Lima?", ["Eva Reis"]),
        (
            "Otto Brandt leitete das Werk bis 1990. Karla Voss leitete das Werk von 1990 bis 2001.",
            "Wer leitete das Werk vor Karla Voss?",
            ["Otto Brandt"],
        ),
        (
            "Jean Petit dirigea le port de 1950 à 1960. Luc Morel dirigea le port dès 1960.",
            "Qui dirigea le port avant Luc Morel ?",
            ["Jean Petit"],
        ),
        # One sentence names both.
        (
            "Ines Falk took over from Tomas Reis in 2009. Ines Falk lives in Bergen.",
            "Who was chair before Ines Falk?",
            ["took over"],
        ),
        # Neither a person nor a reference.
        (CHAIRS, "When did Ines Falk become chair?", ["1961", "Reis", "Falk", "Lund"]),
        (CHAIRS, "Who was chair before 2009?", ["1961", "Reis", "Falk", "Lund"]),
        # Rows that name something else.
        (PUMPS, "What is the flow of pump P12?", ["P12"]),
        (PUMPS, "How do P11 and P13 differ?", ["P11", "P13"]),
        (PUMPS, "What is the flow of the pumps?", ["P11", "P12", "P13"]),
        (PUMPS.replace("P1", "Hall "), "What is the flow of Hall 2?", ["Hall 2"]),
        # A code in a row without column names tells columns apart, and not rows.
        (SAMPLES, "How much nickel is in S-2?", ["Metal", "Lead", "Nickel"]),
        # Quoted phrases and excluded words.
        (SMOKING, 'Where is smoking "not allowed"?', ["deck"]),
        (SMOKING, "Where is smoking “not  Allowed”?", ["deck"]),
        (SMOKING, "What is in the yard -dogs", ["deck", "Smoking is allowed"]),
        (SMOKING, "What is in the yard-dogs", ["deck", "Smoking is allowed", "Dogs"]),
        # No sentence holds the phrase: whether to refuse is decided by the documents.
        (SMOKING, 'Where is smoking "never allowed"?', ["deck", "Smoking is allowed", "Dogs"]),
    ],
)
def test_sentences_about_other_things_are_last(text: str, question: str, kept: list[str]) -> None:
    candidates = extract_quote_candidates(make_contexts(text), question)
    scores = demote_rows(candidates, plan(question), [1.0] * len(candidates))
    quoted = [item.text for item, score in zip(candidates, scores, strict=True) if score > 0]
    assert len(quoted) == len(kept)
    assert all(part in sentence for part, sentence in zip(kept, quoted, strict=True))


def test_reference_has_its_words() -> None:
    reference = find_reference("Quem dirigia o porto antes de Ana Lima?")
    assert reference is not None
    assert (reference.phrase, reference.is_before) == ("antes de Ana Lima", True)


RULES = RelevanceDecision(False, 0.9, 0.5, 0.0, "rules")


def plan(question: str, language: str = "en") -> QueryPlan:
    return plan_query(question, language, GuessedLanguageDetector())


def weigh(question: str, contexts: Sequence[ContextPassage], language: str = "en") -> Evidence:
    candidates = tuple(extract_quote_candidates(contexts))
    states, token_ids = token_states_of(question)
    similarities = compare_states(
        [token_states_of(item.readable_text) for item in candidates], states, token_ids
    )
    features = compute_selection_features(candidates, plan(question, language), similarities)
    return Evidence(candidates, combine_features(features), similarities)


def quote(question: str, *texts: str) -> list[str]:
    contexts = make_contexts(*texts)
    evidence = weigh(question, contexts)
    return [item.text for _, item in select_quotes(evidence, plan(question))]


def test_three_sentences_near_the_best_one_are_quoted() -> None:
    candidates = tuple(extract_quote_candidates(make_contexts(*(f"Note {n}." for n in range(4)))))
    for scores, rows in (((5.0, 4.0, 3.5, 4.5), [0, 1, 3]), ((5.0, 2.9, 3.0, 2.9), [0, 2])):
        quotes = select_quotes(Evidence(candidates, scores), plan("What is the warranty?"))
        assert [row for row, _ in quotes] == rows


def test_answer_in_the_next_sentence_is_quoted_with_its_lead() -> None:
    text = "The standby pump did not start. Its switch had been left in the manual position."
    assert quote("Why did the standby pump not start?", text)[0] == text


def test_lead_with_the_requested_value_is_quoted_alone() -> None:
    text = "The replacement of the bearing costs 18,740 euros. It takes two technicians one day."
    assert quote("What does the replacement of the bearing cost?", text)[0] == (
        "The replacement of the bearing costs 18,740 euros."
    )


def test_sentence_in_another_paragraph_is_not_joined() -> None:
    text = "The standby pump did not start.\n\nVisitors sign the book at the gate."
    assert quote("Why did the standby pump not start?", text)[0] == (
        "The standby pump did not start."
    )


def test_row_with_the_code_of_the_question_is_the_lead() -> None:
    table = (
        "| Code | Meaning |\n|---|---|\n| E23 | Probe fault |\n| E17 | Water missing |\n"
        "| E24 | Probe fault |"
    )
    assert quote("What does code E17 mean?", table)[0] == "| E17 | Water missing |"


def test_column_of_the_first_row_is_marked_in_every_row() -> None:
    table = (
        "| Lamp | Sense |\n|---|---|\n| Flashing blue | Scale |\n| Flashing red | Overheated pump |"
    )
    first, second = extract_quote_candidates(make_contexts(table))
    columns: dict[tuple[str, ...], int | None] = {}
    question = "What is the sense of a flashing blue lamp?"
    marked = [mark_value(row, question, Redactor(), columns) for row in (first, second)]
    assert marked == [
        "Lamp: Flashing blue; Sense: **Scale**",
        "Lamp: Flashing red; Sense: **Overheated pump**",
    ]


FAQ = (
    "STAFF QUESTIONS\n===============\n\nMay I lend my badge?\n--------------------\n\n"
    "Never. A badge belongs to one person.\n\nThings to bring:\n\n- a towel\n- a lock\n"
)


def test_german_ordinal_ends_no_sentence() -> None:
    (context,) = make_contexts(
        "Der Rest verfällt am 31. März. Im 2. Quartal 2025 waren es 12. Ende."
    )
    german = replace(context, children=(replace(context.children[0], language="de"),))
    assert [item.text for item in extract_quote_candidates([german])] == [
        "Der Rest verfällt am 31. März.",
        "Im 2. Quartal 2025 waren es 12.",
        "Ende.",
    ]


def test_underlined_heading_is_a_lead_in_and_never_quoted() -> None:
    candidates = extract_quote_candidates(make_contexts(FAQ))
    assert [(item.text, item.lead_in_text.strip()) for item in candidates] == [
        ("Never.", "May I lend my badge?"),
        ("A badge belongs to one person.", "May I lend my badge?"),
        ("Things to bring:", "May I lend my badge?"),
        ("a towel", "Things to bring:"),
        ("a lock", "Things to bring:"),
    ]


@pytest.mark.parametrize(
    ("question", "missing", "message"),
    [
        (
            "What is the warranty of an HX-12?",
            ("HX-12",),
            "The passages found mention HX-11, HX-9, not HX-12.",
        ),
        (
            "What did the warranty cost in 2014?",
            ("2014",),
            "The passages found do not mention 2014.",
        ),
        (
            "Who sells the HX-9 in Elmstead?",
            ("Elmstead",),
            "The passages found do not mention Elmstead.",
        ),
    ],
)
def test_term_that_no_document_has_refuses_with_what_they_mention(
    question: str, missing: tuple[str, ...], message: str
) -> None:
    contexts = make_contexts("The warranty of an HX-9 is 36 months. That of an HX-11 is 24 months.")
    decision = assess_evidence(
        RULES, weigh(question, contexts), contexts, plan(question), AnswerProfile()
    )
    assert decision.refused and decision.missing_terms == missing
    assert format_missing_codes(decision, "en") == [message]


@pytest.mark.parametrize(
    ("question", "language", "missing"),
    [
        ("When must staff of the Danish subsidiary submit claims?", "en", ()),
        # The text has "rock", which is a synonym of a stone and no name.
        ("When must staff of Ms Stone submit claims?", "en", ("Stone",)),
        # In another language a name may be another word.
        ("Quando entrega a equipa de Londres as contas?", "pt", ()),
    ],
)
def test_names_are_held_by_other_forms_and_not_missed_across_languages(
    question: str, language: str, missing: tuple[str, ...]
) -> None:
    contexts = make_contexts(
        "Staff of the subsidiary in Denmark submit claims within 60 days, as in Lisbon.",
        "A rock fell.",
    )
    decision = assess_evidence(
        RULES,
        weigh(question, contexts, language),
        contexts,
        plan(question, language),
        AnswerProfile(min_confidence=0.0),
    )
    assert decision.missing_terms == missing


def test_held_terms_are_left_to_the_estimated_probability() -> None:
    question = "What is the warranty of an HX-9?"
    contexts = make_contexts("The warranty of an HX-9 is 36 months.", "Visitors sign the book.")
    evidence = weigh(question, contexts)
    decisions = [
        assess_evidence(RULES, evidence, contexts, plan(question), profile)
        for profile in (AnswerProfile(min_confidence=0.0), AnswerProfile(min_confidence=1.0))
    ]
    assert [decision.refused for decision in decisions] == [False, True]
    assert decisions[0].probability == decisions[1].probability is not None


def test_foreign_sentence_with_translated_words_is_the_lead() -> None:
    question = "Que caução paga o inquilino?"
    contexts = make_contexts(
        "The keys are returned in June. A deposit of 900 euros is due from the tenant. Dogs bark."
    )
    evidence = weigh(question, contexts, "pt")
    overlaps = compute_overlaps(evidence.candidates, plan(question, "pt"))
    assert overlaps.argmax() == 1 and overlaps[1] > 0.5
    assert evidence.scores is not None and np.argmax(evidence.scores) == 1


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("Que caução paga o inquilino?", "Que seguro paga o inquilino?"),
        ("Quantos inquilinos tem a casa?", "Quantos carros tem a casa?"),
    ],
)
def test_what_a_foreign_text_does_not_speak_of_is_less_probable(asked: str, near: str) -> None:
    contexts = make_contexts(
        "A deposit of 900 euros is due from the tenant.", "The house has 12 tenants and a car."
    )
    probabilities = [
        assess_evidence(
            RULES,
            weigh(question, contexts, "pt"),
            contexts,
            plan(question, "pt"),
            AnswerProfile(),
        ).probability
        for question in (asked, near)
    ]
    (asked_probability, near_probability) = probabilities
    assert asked_probability is not None and near_probability is not None
    assert asked_probability > near_probability


def test_profile_threshold_keeps_the_rules() -> None:
    question = "What is the warranty of an HX-12?"
    contexts = make_contexts("The warranty of an HX-9 is 36 months.")
    profile = AnswerProfile(threshold=0.5)
    evidence = weigh(question, contexts)
    assert assess_evidence(RULES, evidence, contexts, plan(question), profile) is RULES


def test_without_token_states_the_rules_stand() -> None:
    contexts = make_contexts("The warranty of an HX-9 is 36 months.")
    candidates = tuple(extract_quote_candidates(contexts))
    decision = assess_evidence(
        RULES, Evidence(candidates, (0.0,)), contexts, plan("HX-12?"), AnswerProfile()
    )
    assert decision is RULES


def test_difference_between_languages_is_subtracted_from_foreign_sentences() -> None:
    generator = np.random.default_rng(1)
    means = {language: generator.normal(size=8) / 10 for language in ("en", "pt")}
    words = generator.normal(size=(4, 8)) / 10
    languages = ["pt", "pt", "en", "pt-BR"]
    # Each word has the same state in both languages, but for the mean.
    sentences = [
        ((word + means[language[:2]])[None].astype(np.float32), np.array([row], np.int32))
        for row, (word, language) in enumerate(zip(words, languages, strict=True))
    ]
    shifts = find_language_shifts(languages, "en", means)
    question = (words[3] + means["en"])[None].astype(np.float32)
    ids = np.array([9], np.int32)
    shifted = compare_states(sentences, question, ids, shifts).score()
    assert shifted.argmax() == 3 and shifted[3] > 0.95
    assert compare_states(sentences, question, ids).score()[3] < shifted[3]


@pytest.mark.parametrize(
    ("languages", "question_language"), [(["en"], "en"), (["ja"], "en"), (["en"], "ja"), ([""], "")]
)
def test_sentences_without_a_known_other_language_are_not_shifted(
    languages: list[str], question_language: str
) -> None:
    means = {"en": np.ones(2, np.float32), "pt": np.zeros(2, np.float32)}
    assert find_language_shifts(languages, question_language, means) == [None]
