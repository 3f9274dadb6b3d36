"""Estimate the probability that the quoted answer is right, and refuse when it is low.

A logistic regression over the scores of the selected sentences and passages, the question's words
that they hold, and its codes and names that they lack. `benchmarks.evidence_model` learns its
weights; `docs/measurements.md` says how the shipped ones were made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from retrieval.answering.attributes import (
    GENERIC_KEYS,
    find_attribute,
    find_predicate,
    is_said,
    is_supported,
)
from retrieval.answering.evidence import Evidence, Similarities, list_unit_texts, rank_rows
from retrieval.answering.succession import lacks_other_person
from retrieval.evidence_model import EVIDENCE_MODEL
from retrieval.question.answer_values import (
    detect_answer_type,
    find_value,
    holds_other_dimension,
    lacks_count,
)
from retrieval.question.query_plan import QueryPlan
from retrieval.question.question_terms import (
    TextTerms,
    find_alternatives,
    find_labels,
    find_phrases,
    find_question_terms,
    holds_phrase,
    index_text_terms,
)
from retrieval.question.translation import find_equivalents, match_synonyms, match_words
from retrieval.question.words import extract_content_words, is_unspaced, stem_word
from retrieval.ranking.context_packing import ContextPassage
from retrieval.ranking.quote_candidates import QuoteCandidate
from retrieval.ranking.relevance import RelevanceDecision
from schemas.answer_profiles import AnswerProfile

# Not settings, since the weights were learned with these numbers.
# Sentences that the quotes are chosen from with the default `answer.max_quotes`.
N_QUOTED = 3
# Similarity below which a word of the question has no counterpart.
WEAK_SIMILARITY = 0.45
N_COMPARED_PASSAGES = 10
# From here on a missing attribute does not refuse. On questions that the rules were not written for
# (`benchmarks/answers_set`), all four that it refused there were right answers.
_SURE_PROBABILITY = 0.6
# What a word and its translation in a sentence have in common at least, mostly.
TRANSLATION_SIMILARITY = 0.6
# Share of the words of answerable questions that the right sentences hold, translated.
TYPICAL_COVERAGE = 0.78
# By which names of two languages begin alike: London, Londres; Lisbon, Lisboa.
_SHARED_LETTERS = 3
_CAPITALIZED = re.compile(r"\b[^\W\d_a-zà-öø-ÿ]\w+")


def assess_evidence(
    relevance: RelevanceDecision,
    evidence: Evidence,
    contexts: Sequence[ContextPassage],
    rerank_scores: Sequence[float],
    plan: QueryPlan,
    profile: AnswerProfile,
) -> RelevanceDecision:
    """Replace the decision by rules with the learned one.

    Without token states, and for a profile with a threshold of its own, the rules stand, and also
    where they found nothing to judge.
    """
    if (
        evidence.similarities is None
        or evidence.scores is None
        or profile.threshold is not None
        or (relevance.refused and relevance.best is None)
    ):
        return relevance
    above_background = sorted(
        (score - relevance.background for score in rerank_scores), reverse=True
    )
    documents = list_quoted_documents(evidence.candidates, evidence.scores, contexts)
    features = compute_confidence_features(
        evidence, evidence.similarities, evidence.scores, documents, above_background, plan
    )
    probability = estimate_probability(
        features, EVIDENCE_MODEL.confidence, EVIDENCE_MODEL.intercept
    )
    is_foreign = features["is_foreign"] > 0
    missing_terms = find_missing_terms(
        index_text_terms(documents), documents, plan, is_foreign=is_foreign
    )
    alternatives = find_alternatives(missing_terms, documents)
    if not missing_terms and probability < _SURE_PROBABILITY:
        missing_terms = find_missing_attribute(evidence, documents, plan) or find_missing_predicate(
            evidence, documents, plan
        )
        alternatives = list_topics(evidence) if missing_terms else []
    is_gibberish = (
        not is_foreign
        # There a character is a word, and has tokens of its own.
        and not is_unspaced(plan.question)
        and not features["document_coverage"]
        and _count_tokens_per_letter(evidence.similarities, plan)
        > EVIDENCE_MODEL.max_tokens_per_letter
    )
    min_confidence = profile.min_confidence
    if min_confidence is None:
        min_confidence = (
            EVIDENCE_MODEL.refuse_foreign_below if is_foreign else EVIDENCE_MODEL.refuse_below
        )
    # Translations score lower, also right ones; their score is among the features.
    is_far = (
        not is_foreign and _get_lead_score(evidence, relevance) < EVIDENCE_MODEL.min_rerank_score
    )
    # In any language, a length is no temperature.
    quoted_texts = list_window_texts(evidence.candidates, rank_rows(evidence.scores)[:N_QUOTED])
    is_other_dimension = holds_other_dimension(plan.question, quoted_texts)
    if not is_foreign and not missing_terms:
        rows = rank_rows(evidence.scores)[:N_QUOTED]
        windows = {other for row in rows for other in list_window(evidence.candidates, row)}
        window_texts = [evidence.candidates[row].readable_text for row in windows]
        if reference := lacks_other_person(window_texts, plan.question):
            missing_terms = [reference.phrase]
    reason = f"estimated probability {probability:.0%} that the quotes answer the question"
    if missing_terms:
        reason = f"the documents lack {', '.join(missing_terms)}"
    elif is_gibberish:
        reason = "the documents hold no word of the question"
    elif is_other_dimension:
        reason = "the quotes give quantities of another kind than the question asks for"
    return replace(
        relevance,
        # However close its meaning, a passage about another product, year or person is no answer.
        refused=bool(missing_terms)
        or is_gibberish
        or is_other_dimension
        or is_far
        or probability < min_confidence,
        reason=reason,
        probability=probability,
        missing_terms=tuple(missing_terms),
        alternatives=tuple(alternatives),
    )


def _get_lead_score(evidence: Evidence, relevance: RelevanceDecision) -> float:
    """Return the rerank score, above the background, of the passage with the best sentence."""
    assert evidence.scores is not None
    lead = evidence.candidates[rank_rows(evidence.scores)[0]].context.parent
    return math.inf if lead.rerank_score is None else lead.rerank_score - relevance.background


def _count_tokens_per_letter(similarities: Similarities, plan: QueryPlan) -> float:
    """Return the question's tokens per letter: many where the tokenizer does not know the words."""
    letters = sum(character.isalnum() for character in plan.question)
    return len(similarities.weights) / max(1, letters)


def list_quoted_documents(
    candidates: Sequence[QuoteCandidate],
    scores: Sequence[float],
    contexts: Sequence[ContextPassage],
) -> list[str]:
    """Return what was read of the documents of the best sentences, a text for each passage."""
    document_ids = {candidates[row].chunk.document_id for row in rank_rows(scores)[:N_QUOTED]}
    return [
        context.readable_text for context in contexts if context.parent.document_id in document_ids
    ]


def find_missing_terms(
    held: TextTerms, documents: Sequence[str], plan: QueryPlan, *, is_foreign: bool
) -> list[str]:
    """Return the identifying codes, the names and the numbered things that the documents, whose
    terms are `held`, lack.
    """
    terms = find_question_terms(plan.question, plan.language)
    capitalized = {stem_word(word) for text in documents for word in _CAPITALIZED.findall(text)}

    def holds_name(name: str) -> bool:
        key = stem_word(name)
        if held.holds_name(name):
            return True
        if is_foreign:
            # Names are translated: "Londres". Listed ones, as of countries, may be other words.
            return bool(find_equivalents(name, plan.language, None)) or any(
                other[:_SHARED_LETTERS] == key[:_SHARED_LETTERS] for other in capitalized
            )
        # "Danish" where the text says "Denmark", and not "Woods" where it says "wooden".
        return match_synonyms([name], plan.language, plan.language, capitalized) == [True]

    return (
        [code for code in terms.identifiers if not held.holds_code(code)]
        + [name for name in terms.names if not holds_name(name)]
        + [
            phrase
            for phrase in find_phrases(plan.question)
            if not is_foreign and not holds_phrase(documents, phrase)
        ]
        + [
            f"{noun} {number}"
            for noun, number in find_labels(plan.question)
            if held.lacks_label(noun, number, is_name=noun in terms.names)
        ]
    )


def find_missing_attribute(
    evidence: Evidence, documents: Sequence[str], plan: QueryPlan
) -> list[str]:
    """Return the words of the attribute that the question asks for, if nothing speaks of it."""
    attribute = find_attribute(plan.question, plan.language)
    assert evidence.scores is not None and evidence.similarities is not None
    rows = rank_rows(evidence.scores)[:N_QUOTED]
    if not attribute or not _is_in_language_of(plan, evidence, rows[0]):
        return []
    windows = [list_window(evidence.candidates, row) for row in rows]
    quoted_rows = sorted({row for window in windows for row in window})
    if is_supported(
        attribute, evidence, evidence.similarities, windows[0], quoted_rows, documents, plan
    ):
        return []
    return [plan.question[attribute[0][0] : attribute[-1][1]]]


def _is_in_language_of(plan: QueryPlan, evidence: Evidence, row: int) -> bool:
    """Another language, even where it is not sure, has other words for what is asked."""
    language = evidence.candidates[row].chunk.language or plan.language or ""
    return language.split("-")[0] == (plan.language or "")


def find_missing_predicate(
    evidence: Evidence, documents: Sequence[str], plan: QueryPlan
) -> list[str]:
    """Return the participle that a question asks of which thing it is said, if nothing says it."""
    predicate = find_predicate(plan.question, plan.language)
    assert evidence.scores is not None and evidence.similarities is not None
    rows = rank_rows(evidence.scores)[:N_QUOTED]
    if predicate is None or not _is_in_language_of(plan, evidence, rows[0]):
        return []
    quoted_rows = sorted({row for lead in rows for row in list_window(evidence.candidates, lead)})
    if is_said(predicate, evidence, evidence.similarities, quoted_rows, documents, plan):
        return []
    return [plan.question[slice(*predicate)]]


def list_topics(evidence: Evidence) -> list[str]:
    """Return the innermost headings, else the titles, of the sentences to quote."""
    assert evidence.scores is not None
    quoted = [evidence.candidates[row] for row in rank_rows(evidence.scores)[:N_QUOTED]]
    names = [
        candidate.section.rpartition(" > ")[2] or candidate.chunk.title or ""
        for candidate in quoted
    ]
    return list(dict.fromkeys(filter(None, names)))


def list_window(candidates: Sequence[QuoteCandidate], row: int) -> list[int]:
    """Return the row with its neighbors in the same chunk."""
    return [
        other
        for other in (row - 1, row, row + 1)
        if 0 <= other < len(candidates)
        and candidates[other].chunk.chunk_id == candidates[row].chunk.chunk_id
    ]


def list_window_texts(candidates: Sequence[QuoteCandidate], rows: Sequence[int]) -> list[str]:
    """Return the texts of the rows with their neighbors and headings."""
    return [
        text
        for row in rows
        for other in list_window(candidates, row)
        for text in list_unit_texts(candidates[other])
    ]


def compute_confidence_features(
    evidence: Evidence,
    similarities: Similarities,
    scores: Sequence[float],
    documents: Sequence[str],
    rerank_scores: Sequence[float],
    plan: QueryPlan,
) -> dict[str, float]:
    """Return the features by name. `rerank_scores` are above the engine's background, best first.

    Codes and names are looked for in the best sentences with their neighbors and headings, and in
    `documents`, which is everything that was read of the documents of these sentences.
    """
    candidates = evidence.candidates
    rows = rank_rows(scores)
    lead = rows[0]
    quoted_rows = rows[:N_QUOTED]
    lead_rows = list_window(candidates, lead)
    quoted_terms = index_text_terms(list_window_texts(candidates, quoted_rows))
    lead_terms = index_text_terms(list_window_texts(candidates, [lead]))
    document_terms = index_text_terms(documents)
    terms = find_question_terms(plan.question, plan.language)
    keys = {stem_word(word) for word in extract_content_words(plan.question, plan.language)}
    language = candidates[lead].chunk.language
    is_foreign = plan.is_foreign(language)
    lead_topics = _compute_topic_coverage(plan, language, lead_terms)
    quoted_topics = _compute_topic_coverage(plan, language, quoted_terms)
    window = similarities.tokens[lead_rows].max(axis=0)
    weights = similarities.weights / similarities.weights.sum()
    relative_scores = np.array(scores) - scores[lead]
    shares = np.exp(relative_scores) / np.exp(relative_scores).sum()
    answer_type = detect_answer_type(plan.question)
    has_value = any(
        find_value(answer_type, candidates[row].readable_text, plan.question) for row in quoted_rows
    )

    attribute = find_attribute(plan.question, plan.language) if is_foreign else []
    attribute_similarity = min(
        (similarities.compare_span(lead_rows, place) for place in attribute),
        default=TRANSLATION_SIMILARITY,
    )

    quoted_texts = [
        (candidates[other].readable_text, candidates[other].chunk.language)
        for row in quoted_rows
        for other in list_window(candidates, row)
    ]

    def count_missing_names(held: TextTerms) -> int:
        return 0 if is_foreign else sum(not held.holds_name(name) for name in terms.names)

    best_rerank, *other_reranks = [*rerank_scores, 0.0]
    return {
        "window_similarity": float(window @ weights),
        "lead_similarity": float(similarities.score([lead])[0]),
        "weak_share": float((window < WEAK_SIMILARITY) @ weights),
        "lead_share": float(shares[lead]),
        "entropy": float(-(shares * np.log(shares + 1e-12)).sum()),
        "score_margin": float(scores[lead] - np.sort(scores)[-N_COMPARED_PASSAGES:].mean()),
        "rerank_score": best_rerank,
        "rerank_gap": best_rerank - other_reranks[0] if other_reranks else 0.0,
        "rerank_margin": best_rerank
        - sum(rerank_scores[:N_COMPARED_PASSAGES])
        / max(1, len(rerank_scores[:N_COMPARED_PASSAGES])),
        "lead_coverage": 0.0 if is_foreign else _compute_coverage(keys, lead_terms),
        "quoted_coverage": 0.0 if is_foreign else _compute_coverage(keys, quoted_terms),
        "document_coverage": 0.0 if is_foreign else _compute_coverage(keys, document_terms),
        "is_foreign": float(is_foreign),
        "foreign_lead_coverage": lead_topics if is_foreign else 0.0,
        "foreign_quoted_coverage": quoted_topics if is_foreign else 0.0,
        "foreign_lacks_count": float(
            is_foreign and lacks_count(plan.question, plan.language, quoted_texts)
        ),
        "foreign_attribute_lack": max(0.0, TRANSLATION_SIMILARITY - attribute_similarity),
        "lacks_value": float(answer_type is not None and not has_value),
        "codes_missing": float(any(not quoted_terms.holds_code(code) for code in terms.codes)),
        "codes_missing_in_document": float(
            any(not document_terms.holds_code(code) for code in terms.codes)
        ),
        "names_missing": float(count_missing_names(quoted_terms)),
        "names_missing_in_document": float(count_missing_names(document_terms)),
        "log_keywords": math.log1p(len(keys)),
    }


def _compute_coverage(keys: set[str], terms: TextTerms) -> float:
    return len(keys & terms.stems) / len(keys) if keys else 0.0


def _compute_topic_coverage(plan: QueryPlan, language: str | None, terms: TextTerms) -> float:
    """Return the share of the words that say what is asked for which the terms, of a text in
    `language`, hold as they are or translated.

    Names and codes say it of what, and are compared by themselves. Words that are not in the
    dictionary are left out, and one word of typical coverage is added, so that few words say less.
    """
    names = {name.lower() for name in find_question_terms(plan.question, plan.language).names}
    words = {
        key: word
        for word in extract_content_words(plan.question, plan.language)
        if (key := stem_word(word)) not in GENERIC_KEYS and word not in names and key.isalpha()
    }
    matches = match_words(words.values(), plan.language, language, terms.stems)
    known = [match for match in matches if match is not None]
    return (sum(known) + TYPICAL_COVERAGE) / (len(known) + 1)


def estimate_probability(
    features: Mapping[str, float], weights: Mapping[str, float], intercept: float
) -> float:
    logit = intercept + sum(weight * features[name] for name, weight in weights.items())
    return 1 / (1 + math.exp(-logit))
