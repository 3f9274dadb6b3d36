"""Find numbers and dates on which the retrieved documents disagree.

Two sentences of different documents conflict when they state the same about the same subject, with
another amount of the same unit, or another date. Everything else that could explain the difference
must be equal: codes, names, years, and the words of both sentences and titles, of which only one
side may have more. A difference between subjects, units or periods is no conflict.

Titles without a common word are those of different kinds of documents, such as minutes and a plan,
and tell nothing of the subject: there, both sentences must hold several words of the question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from retrieval.answering.answer_drafts import CitationList
from retrieval.answering.evidence import (
    MAX_QUOTES,
    QUOTE_DISTANCE,
    Evidence,
    list_unit_texts,
    rank_rows,
)
from retrieval.question.answer_values import AnswerType, detect_answer_type
from retrieval.question.quantities import (
    Quantity,
    QuantityKind,
    apply_raw_values,
    blank_quantities,
    find_quantities,
)
from retrieval.question.query_plan import QueryPlan
from retrieval.question.question_terms import find_question_terms, index_labels, index_text_terms
from retrieval.question.words import extract_stems, stem_word
from retrieval.ranking.quote_candidates import QuoteCandidate, find_equal_quotes
from retrieval.redaction import Redactor
from schemas.questions import Conflict, ConflictingValue

# Distance in score from the best sentence up to which sentences of other documents are compared
# with it for conflicting numbers and dates.
CONFLICT_DISTANCE = 8.0
# Kinds of quantities that answer a question of the type. Other quantities must be equal.
_ANSWERING_KINDS: dict[AnswerType | None, frozenset[QuantityKind]] = {
    # A fee may be a share.
    "money": frozenset({"money", "number", "percentage"}),
    "percentage": frozenset({"percentage"}),
    "number": frozenset({"number", "money", "percentage"}),
    "date": frozenset({"date"}),
    None: frozenset({"number", "money", "percentage", "date"}),
}
# Words that tell editions of one document apart, and not their subjects.
_EDITION_WORDS = frozenset(map(stem_word, (
    "version", "versão", "versión", "rev", "revision", "revised", "edition", "edição", "edición",
    "updated", "update", "amended", "old", "new", "draft", "final", "signed", "copy", "original",
    "current", "previous", "document", "file", "novo", "nova", "antigo", "antiga", "atualizado",
    "nouveau", "ancien", "neu", "alt",
)))  # fmt: skip
# Words that state a value, and say nothing of its subject.
_STATING_WORDS = frozenset(map(stem_word, (
    "amounts", "amount", "set", "stands", "comes", "equals", "fixed", "beträgt", "betragen",
    "corresponde", "equivale", "fixado", "asciende", "s'élève",
)))  # fmt: skip
_CLAUSE = re.compile(r"[^;]+")
# Not settings: they define when two sentences are about the same number.
_MIN_SHARED_WORDS = 2
_MIN_QUESTION_WORDS = 3
_MIN_SHARE = 0.5
# Every sentence is compared with the best ones only.
_MAX_COMPARED = 60


Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """Rows of the evidence that state different amounts.

    `places` has those that conflict, best first, with the place of the amount in the readable text
    of each. `other_editions` differ from the best row, and their passages lack a code or name of
    the question that its passage holds: they are about another year or thing.
    """

    places: Mapping[int, Place] = field(default_factory=dict)
    other_editions: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Statement:
    """A sentence, or a clause of it, with its quantities by their places in the sentence, and the
    words around them to compare. `other_words` are those that only the other clauses have.
    """

    candidate: QuoteCandidate
    quantities: tuple[Quantity, ...]
    words: frozenset[str]
    anchors: frozenset[str]
    title_words: frozenset[str]
    labels: Mapping[str, frozenset[str]]
    other_words: frozenset[str] = frozenset()


def compare_documents(evidence: Evidence, plan: QueryPlan) -> ComparedRows:
    """Find the conflict that involves the best of the candidates to quote, if any does.

    They are compared with all candidates up to CONFLICT_DISTANCE in score from the best one: that
    a sentence says the same makes it about the question too. A question that asks for no number or
    date, such as one for a name, has no conflict.
    """
    answer_type = detect_answer_type(plan.question)
    if answer_type not in _ANSWERING_KINDS:
        return ComparedRows()
    kinds = _ANSWERING_KINDS[answer_type]
    candidates, scores = evidence.candidates, evidence.get_scores(plan)
    order = rank_rows(scores)
    rows = [row for row in order if scores[row] >= scores[order[0]] - CONFLICT_DISTANCE]
    statements = {row: _read_statements(candidates[row]) for row in rows[:_MAX_COMPARED]}
    other_editions: frozenset[int] = frozenset()
    for lead in select_rows_to_quote(scores, rows):
        places: dict[int, Place] = {}
        values: set[str] = set()
        for row, others in statements.items():
            pair = _compare_any(statements[lead], others, kinds, plan)
            if pair is None:
                continue
            # A question about 2024 is answered by the document of that year.
            lead_terms, terms = (_list_held_terms(candidates[n], plan) for n in (lead, row))
            if terms < lead_terms and lead == order[0]:
                other_editions |= {row}
            # A value is shown once, from its best sentence.
            if terms == lead_terms and pair[1].value not in values:
                places.setdefault(lead, pair[0].place_with_unit)
                places[row] = pair[1].place_with_unit
                values |= {pair[0].value, pair[1].value}
        if places:
            return ComparedRows(places, other_editions)
    return ComparedRows(other_editions=other_editions)


def cite_conflict(
    places: Mapping[int, Place],
    evidence: Evidence,
    citations: CitationList,
    redactor: Redactor,
) -> Conflict | None:
    """Cite every source of each value; None unless at least two values can be cited."""
    values = []
    for row, (start, end) in places.items():
        quote = evidence.candidates[row]
        if numbers := citations.cite(find_equal_quotes(quote, evidence.candidates)):
            value = redactor.mask(quote.readable_text)[start:end]
            values.append(ConflictingValue(value=value, citations=list(numbers)))
    return Conflict(values=values) if len(values) > 1 else None


def _read_statements(candidate: QuoteCandidate) -> list[_Statement]:
    """Return the statements of the sentence: the whole, and each of several clauses."""
    text = candidate.readable_text
    whole = _read_statement(candidate, 0, text)
    clauses = list(_CLAUSE.finditer(text))
    if candidate.is_row or len(clauses) == 1:
        return [whole]
    parts = [_read_statement(candidate, clause.start(), clause.group()) for clause in clauses]
    return [whole, *(replace(part, other_words=whole.words - part.words) for part in parts)]


def _read_statement(candidate: QuoteCandidate, offset: int, text: str) -> _Statement:
    quantities = tuple(find_quantities(text))
    if candidate.is_row:
        quantities = tuple(apply_raw_values(text, quantities, candidate.raw_places))
    rest = blank_quantities(text, quantities)
    # The unit is a part of the quantity, and compared with it.
    units = {quantity.unit for quantity in quantities}
    terms = find_question_terms(rest, candidate.chunk.language)
    title = candidate.chunk.title or ""
    return _Statement(
        candidate,
        tuple(quantity.shift(offset) for quantity in quantities),
        frozenset(extract_stems(rest) - units - _STATING_WORDS),
        frozenset(stem_word(term) for term in (*terms.codes, *terms.names)),
        frozenset(
            word
            for word in extract_stems(blank_quantities(title, find_quantities(title)))
            if word not in _EDITION_WORDS and not re.fullmatch(r"v?\d+|\w", word)
        ),
        {
            noun: labels
            for noun, labels in index_labels("\n".join([title, rest])).items()
            if noun not in _EDITION_WORDS
        },
    )


def _compare_any(
    firsts: Sequence[_Statement],
    seconds: Sequence[_Statement],
    kinds: frozenset[QuantityKind],
    plan: QueryPlan,
) -> tuple[Quantity, Quantity] | None:
    """Return the first quantities that differ between any two of the statements."""
    pairs = (_compare(first, second, kinds, plan) for first, second in product(firsts, seconds))
    return next(filter(None, pairs), None)


def _compare(
    first: _Statement, second: _Statement, kinds: frozenset[QuantityKind], plan: QueryPlan
) -> tuple[Quantity, Quantity] | None:
    """Return the first quantities that differ, or None when the two do not conflict."""
    if (
        first.candidate.chunk.document_id == second.candidate.chunk.document_id
        or first.candidate.chunk.language != second.candidate.chunk.language
        or first.anchors != second.anchors
        # Aurora 5 and Aurora 9 are two things.
        or any(
            labels.isdisjoint(second.labels.get(noun, labels))
            for noun, labels in first.labels.items()
        )
        # Another clause is the one about the question.
        or (first.other_words | second.other_words) & extract_stems(plan.question)
        or not _say_the_same(first, second, plan)
    ):
        return None
    pairs = _align(first.quantities, second.quantities, kinds)
    return next((pair for pair in pairs or () if not pair[0].is_equal(pair[1])), None)


def _say_the_same(first: _Statement, second: _Statement, plan: QueryPlan) -> bool:
    """Tell whether only one of the two, or none, has words that the other lacks."""
    shared = first.words & second.words
    is_same_subject = (
        bool(first.anchors)
        or _is_subset(first.title_words, second.title_words)
        or (
            not first.title_words & second.title_words
            and len(shared & extract_stems(plan.question)) >= _MIN_QUESTION_WORDS
        )
    )
    return (
        len(shared) >= (_MIN_SHARED_WORDS if first.title_words != second.title_words else 1)
        and len(shared) >= _MIN_SHARE * max(len(first.words), len(second.words))
        and _is_subset(first.words, second.words)
        and is_same_subject
    )


def _is_subset(first: frozenset[str], second: frozenset[str]) -> bool:
    return first <= second or second <= first


def _list_held_terms(candidate: QuoteCandidate, plan: QueryPlan) -> frozenset[str]:
    """Return the codes and names of the question that the passage holds."""
    terms = find_question_terms(plan.question, plan.language)
    held = index_text_terms(list_unit_texts(candidate))
    return frozenset([*filter(held.holds_code, terms.codes), *filter(held.holds_name, terms.names)])


def _align(
    first: Sequence[Quantity], second: Sequence[Quantity], kinds: frozenset[QuantityKind]
) -> list[tuple[Quantity, Quantity]] | None:
    """Return pairs of comparable quantities, or None if the others explain the difference.

    A bare year is a period, unless dates alone are asked for.
    """
    dates_only = kinds == {"date"}

    def is_open(quantity: Quantity) -> bool:
        return quantity.kind in kinds and (dates_only or not quantity.is_year)

    fixed = [
        sorted(
            (quantity.kind, quantity.unit, quantity.value)
            for quantity in quantities
            if not is_open(quantity)
        )
        for quantities in (first, second)
    ]
    opened = [list(filter(is_open, quantities)) for quantities in (first, second)]
    if fixed[0] != fixed[1] or [(quantity.kind, quantity.unit) for quantity in opened[0]] != [
        (quantity.kind, quantity.unit) for quantity in opened[1]
    ]:
        return None
    return list(zip(*opened, strict=True))


def select_rows_to_quote(scores: Sequence[float], ranked_rows: Sequence[int]) -> list[int]:
    """Return the first rows, as many as are quoted, that are close to the best one."""
    return [
        row
        for row in ranked_rows[:MAX_QUOTES]
        if scores[row] >= scores[ranked_rows[0]] - QUOTE_DISTANCE
    ]
