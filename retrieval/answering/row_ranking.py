"""Rank rows and sentences last that are not about what the question names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retrieval.answering.designations import find_designations, is_about_another, relate_candidates
from retrieval.answering.succession import find_rows_to_demote
from retrieval.question.query_plan import QueryPlan
from retrieval.question.question_terms import (
    TextTerms,
    find_excluded_words,
    find_labels,
    find_phrases,
    find_question_terms,
    holds_phrase,
    index_text_terms,
)
from retrieval.ranking.quote_candidates import QuoteCandidate

# Far behind every sentence: such a row or sentence is never quoted.
EXCLUDED_DISTANCE = 100.0


def demote_other_rows(
    candidates: Sequence[QuoteCandidate], plan: QueryPlan, scores: Sequence[float]
) -> tuple[float, ...]:
    """Rank rows of a table last where another row of it names what the question names, and they
    name something else in its place: the value of P11 is none of P12.
    """
    terms = find_question_terms(plan.question, plan.language)
    labels = find_labels(plan.question)
    demoted = list(scores)
    if not (terms.identifiers or terms.names or labels):
        return tuple(demoted)

    def list_held(text: TextTerms) -> frozenset[str]:
        return frozenset(
            [
                *filter(text.holds_code, terms.identifiers),
                *filter(text.holds_name, terms.names),
                *(f"{noun} {label}" for noun, label in labels if text.has_label(noun, label)),
            ]
        )

    held = {
        row: list_held(index_text_terms([candidate.readable_text]))
        for row, candidate in enumerate(candidates)
        if candidate.is_row
    }
    named_rows = [row for row, own in held.items() if own]
    for row, own in held.items():
        if any(
            own < held[other]
            and _is_of_one_table(candidates[row], candidates[other])
            and _names_another(candidates[row], candidates[other], held[other] - own, list_held)
            for other in named_rows
        ):
            demoted[row] -= EXCLUDED_DISTANCE
    return tuple(demoted)


def demote_others_of_kind(
    candidates: Sequence[QuoteCandidate], question: str, scores: Sequence[float]
) -> tuple[float, ...]:
    """Rank sentences last that are about another thing of the kind that the question designates,
    where others are about that thing itself.
    """
    asked = find_designations(question)
    if not asked:
        return tuple(scores)
    relations = relate_candidates(candidates, asked)
    held = {head for relation in relations for head, value in relation.items() if value == "held"}
    return tuple(
        score - EXCLUDED_DISTANCE
        if is_about_another(relation)
        and held & {head for head, value in relation.items() if value == "other"}
        else score
        for score, relation in zip(scores, relations, strict=True)
    )


def demote_named_reference(
    candidates: Sequence[QuoteCandidate], question: str, scores: Sequence[float]
) -> tuple[float, ...]:
    """Rank sentences last that only speak of a person before or after whom the question asks."""
    rows = find_rows_to_demote(candidates, question)
    return tuple(
        score - EXCLUDED_DISTANCE if row in rows else score for row, score in enumerate(scores)
    )


def _is_of_one_table(first: QuoteCandidate, second: QuoteCandidate) -> bool:
    return first.chunk.document_id == second.chunk.document_id and first.header == second.header


def _names_another(
    candidate: QuoteCandidate,
    named: QuoteCandidate,
    terms: frozenset[str],
    list_held: Callable[[TextTerms], frozenset[str]],
) -> bool:
    """Tell whether the cell in the column where `named` holds the terms names something, too, and
    is no value below a column name.
    """
    header = named.header or ()
    for column, (own_cell, cell) in enumerate(zip(candidate.cells, named.cells, strict=False)):
        name = header[column] if column < len(header) else ""
        if terms & list_held(index_text_terms([f"{name}: {cell}"])):
            return bool(own_cell) and _get_form(own_cell) == _get_form(cell)
    return False


def _get_form(cell: str) -> tuple[bool, bool]:
    return any(map(str.isalpha, cell)), any(map(str.isdigit, cell))


def demote_excluded(
    candidates: Sequence[QuoteCandidate], question: str, scores: Sequence[float]
) -> tuple[float, ...]:
    """Rank sentences last that lack a quoted phrase of the question where others hold it, or hold
    a word that the question excludes by a minus sign.
    """
    phrases, excluded = find_phrases(question), find_excluded_words(question)
    if not (phrases or excluded):
        return tuple(scores)
    texts = [
        [candidate.readable_text, candidate.lead_in_text, candidate.section]
        for candidate in candidates
    ]
    phrases = [phrase for phrase in phrases if any(holds_phrase(unit, phrase) for unit in texts)]
    return tuple(
        score - EXCLUDED_DISTANCE
        if not all(holds_phrase(unit, phrase) for phrase in phrases)
        or (excluded and any(map(index_text_terms(unit).holds_name, excluded)))
        else score
        for score, unit in zip(scores, texts, strict=True)
    )
