"""Estimate the probability that the quoted answer is right, and refuse when it is low.

A logistic regression over how close the best sentences are to the question, the share of its words
that they, their passage and their document hold, and the codes and names that these lack.
`benchmarks.evidence_model` learns its weights; `docs/measurements.md` says how the shipped ones
were made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from retrieval.answering.evidence import (
    MAX_QUOTES,
    Evidence,
    Similarities,
    list_unit_texts,
    rank_rows,
)
from retrieval.evidence_model import EVIDENCE_MODEL
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
from retrieval.question.words import (
    extract_content_words,
    extract_word_keys,
    find_equivalents,
    match_synonyms,
    stem_word,
)
from retrieval.ranking.passages import ContextPassage
from retrieval.ranking.quote_candidates import QuoteCandidate
from retrieval.ranking.relevance import RelevanceDecision
from schemas.answer_profiles import AnswerProfile

N_COMPARED_SENTENCES = 10
# From here on a missing name does not refuse: the documents may write it otherwise.
SURE_PROBABILITY = 0.5
_CAPITALIZED = re.compile(r"\b[^\W\d_a-zà-öø-ÿ]\w+")
# Words that say how something is asked for, and not what: the limit of the pressure is found as its
# maximum, and the vacation entitlement as days of vacation.
_GENERIC_WORDS = (
    "number amount name value kind type sort total maximum minimum average current new exact same "
    "extra main overall many much first last next usual normal actual point moment way "
    "limit level rate size period date duration length range entitlement payment "
    "número quantidade nome valor tipo máximo máxima mínimo mínima médio média atual novo nova "
    "limite nível taxa tamanho período data duração límite nivel tasa tamaño fecha duración niveau "
    "taux taille période durée grenze dauer datum größe "
    # Times, as which "in which month" takes any date.
    "time hour day week month year hora horário dia semana mês ano día mes año heure jour semaine "
    "mois an année stunde uhrzeit tag woche monat jahr "
    "principal exato cantidad nombre nuevo nueva medio media montant nom valeur genre maximal "
    "maximale moyenne nouveau nouvelle anzahl zahl wert art betrag summe menge höhe "
    # Verbs that leave the meaning to their object.
    "do does did make makes made give gives gave take takes took get gets got go goes went "
    "faz fez fazem dá deu dão vai foi deve devem pode podem hace hizo da dio va debe puede "
    "fait fit donne donna va doit peut"
)
_GENERIC_KEYS = frozenset(map(stem_word, _GENERIC_WORDS.split()))


def assess_evidence(
    relevance: RelevanceDecision,
    evidence: Evidence,
    contexts: Sequence[ContextPassage],
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
    documents = list_quoted_documents(evidence.candidates, evidence.scores, contexts)
    features = compute_confidence_features(
        evidence, evidence.similarities, evidence.scores, documents, plan
    )
    weighted = (weight * features[name] for name, weight in EVIDENCE_MODEL.confidence.items())
    probability = 1 / (1 + math.exp(-(EVIDENCE_MODEL.intercept + sum(weighted))))
    missing_terms = find_missing_terms(
        documents, plan, with_names=probability < SURE_PROBABILITY and not features["is_foreign"]
    )
    min_confidence = profile.min_confidence
    if min_confidence is None:
        min_confidence = EVIDENCE_MODEL.refuse_below
    reason = f"estimated probability {probability:.0%} that the quotes answer the question"
    if missing_terms:
        reason = f"the documents lack {', '.join(missing_terms)}"
    return replace(
        relevance,
        # However close its meaning, a passage about another product or year is no answer.
        refused=bool(missing_terms) or probability < min_confidence,
        reason=reason,
        probability=probability,
        missing_terms=tuple(missing_terms),
        alternatives=tuple(find_alternatives(missing_terms, documents)),
    )


def list_quoted_documents(
    candidates: Sequence[QuoteCandidate],
    scores: Sequence[float],
    contexts: Sequence[ContextPassage],
) -> list[str]:
    """Return what was read of the documents of the best sentences, a text for each passage."""
    document_ids = {candidates[row].chunk.document_id for row in rank_rows(scores)[:MAX_QUOTES]}
    return [
        context.readable_text for context in contexts if context.parent.document_id in document_ids
    ]


def find_missing_terms(documents: Sequence[str], plan: QueryPlan, *, with_names: bool) -> list[str]:
    """Return the codes and the numbered things that the documents lack, and the names and phrases
    if these are wanted.
    """
    terms = find_question_terms(plan.question, plan.language)
    held = index_text_terms(documents)
    missing = [code for code in terms.identifiers if not held.holds_code(code)] + [
        f"{noun} {number}"
        for noun, number in find_labels(plan.question)
        if held.lacks_label(noun, number, is_name=noun in terms.names)
    ]
    if not with_names:
        return missing
    capitalized = {stem_word(word) for text in documents for word in _CAPITALIZED.findall(text)}
    missing += [
        name
        for name in terms.names
        if not held.holds_name(name)
        # "Danish" where the text says "Denmark", and not "Woods" where it says "wooden".
        and match_synonyms([name], plan.language, plan.language, capitalized) != [True]
    ]
    phrases = find_phrases(plan.question)
    return missing + [phrase for phrase in phrases if not holds_phrase(documents, phrase)]


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
    plan: QueryPlan,
) -> dict[str, float]:
    """Return the features by name.

    Words, codes and names are looked for in the best sentence with its neighbors and headings
    ("window"), in the best sentences with theirs ("quoted"), in the passage of the best one, and in
    `documents`, which is everything that was read of the documents of these sentences.
    """
    candidates = evidence.candidates
    rows = rank_rows(scores)
    lead = rows[0]
    quoted_texts = list_window_texts(candidates, rows[:MAX_QUOTES])
    passage_texts = [
        text
        for candidate in candidates
        if candidate.context.n == candidates[lead].context.n
        for text in list_unit_texts(candidate)
    ]
    texts_by_scope = {
        "window": list_window_texts(candidates, [lead]),
        "quoted": quoted_texts,
        "passage": passage_texts,
        "document": documents,
    }
    words = extract_content_words(plan.question, plan.language)
    topical_words = [word for word in words if stem_word(word) not in _GENERIC_KEYS]
    language = candidates[lead].chunk.language
    is_foreign = plan.is_foreign(language)
    features: dict[str, float] = {}
    for scope, texts in texts_by_scope.items():
        keys = extract_word_keys("\n".join(texts))
        held = sorted(
            float(
                stem_word(word) in keys
                or not find_equivalents(word, plan.language, language).isdisjoint(keys)
            )
            for word in topical_words
        ) or [0.0]
        features |= {
            f"{scope}_holds_all": held[0],
            f"{scope}_lacks_at_most_one": held[min(1, len(held) - 1)],
            f"{scope}_coverage": sum(held) / len(held),
        }
    quoted_terms, document_terms = index_text_terms(quoted_texts), index_text_terms(documents)
    terms = find_question_terms(plan.question, plan.language)

    def lacks_code(text: TextTerms) -> float:
        return float(any(not text.holds_code(code) for code in terms.codes))

    def count_missing_names(text: TextTerms) -> float:
        # Names are translated: "Londres".
        return 0.0 if is_foreign else sum(not text.holds_name(name) for name in terms.names)

    relative_scores = np.array(scores) - scores[lead]
    return features | {
        "window_similarity": float(similarities.score(list_window(candidates, lead))[0]),
        "reverse_similarity": float(similarities.reverse[lead]),
        "lead_share": float(1 / np.exp(relative_scores).sum()),
        "score_margin": float(-np.sort(relative_scores)[-N_COMPARED_SENTENCES:].mean()),
        "is_foreign": float(is_foreign),
        "codes_missing": lacks_code(quoted_terms),
        "codes_missing_in_document": lacks_code(document_terms),
        "names_missing": count_missing_names(quoted_terms),
        "names_missing_in_document": count_missing_names(document_terms),
        "n_terms": float(len(terms.codes) + len(terms.names)),
        # A long question that suits is less likely to suit by chance.
        "log_words": math.log1p(len(set(words))),
        "log_topical_words": math.log1p(len(topical_words)),
    }
