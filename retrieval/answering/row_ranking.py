"""Rank rows and sentences last that are not about what the question names.

A letter, number or code tells things of one kind apart: T-902 and T-903, hall B and hall C. Such a
designation has a head, which says the kind, and a label. What is said of another label of the same
head is not said of this one. In a question for a predecessor or successor ("Who was chair before
Ines Falk?") the named person is where to look, and never the answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from retrieval.question.answer_values import VALUE_PATTERNS, detect_answer_type
from retrieval.question.query_plan import QueryPlan
from retrieval.question.question_terms import (
    TextTerms,
    find_excluded_words,
    find_labels,
    find_phrases,
    find_question_terms,
    holds_phrase,
    index_labels,
    index_text_terms,
    list_codes,
)
from retrieval.question.words import (
    MONTHS,
    fold_signs,
    is_function_word,
    split_words,
    stem_word,
    strip_accents,
)
from retrieval.ranking.quote_candidates import QuoteCandidate

_BEFORE = (
    r"before|prior to|preced(?:ed|es)|antes d[aeo]|preced(?:eu|ió|e)|antecedeu|avant|a précédé|vor"
)
_AFTER = (
    r"after|succeed(?:ed|s)|follow(?:ed|s)|replac(?:ed|es)|depois d[aeo]|após|a seguir a|sucedeu"
    r"|substituiu|después de|sucedió a|reemplazó a|après|a succédé à|a remplacé|nach"
)
_NAME_WORD = r"[^\W\d_a-zà-öø-ÿ][\w'’-]+"
_REFERENCE = re.compile(
    rf"\b(?:(?P<before>{_BEFORE})|(?P<after>{_AFTER}))\s+(?:(?:Mr|Mrs|Ms|Dr|Sra?|Herrn?|Frau)\.?\s)?"
    rf"(?P<name>{_NAME_WORD}(?:\s{_NAME_WORD})?)"
)
_YEAR = re.compile(r"(?<!\d)(?:1[0-9]|20)\d\d(?!\d)")
# "Lives in Bergen" names no person.
_PLACE = re.compile(
    r"\b(?:in|at|near|to|em|n[oa]s?|en|à|aux?|zu|aus|bei|nach)\s+(?:the\s|la\s|o\s|a\s)?$", re.I
)


@dataclass(frozen=True, slots=True)
class Reference:
    """The person that the question names, with the words that ask for the one before or after."""

    name: str
    phrase: str
    is_before: bool


def find_reference(question: str) -> Reference | None:
    match = _REFERENCE.search(question) if detect_answer_type(question) == "name" else None
    if match is None:
        return None
    return Reference(match["name"], match.group(), match["before"] is not None)


def is_other_person_named(text: str, reference: Reference, question: str) -> bool:
    """Tell whether the text has a name that is no part of the question, and none of a place."""
    known = set(split_words(f"{reference.name} {question}"))
    for match in VALUE_PATTERNS["name"].finditer(text):
        words = [word for word in split_words(match.group()) if not is_function_word(word)]
        is_place = _PLACE.search(text[: match.start()]) is not None
        is_initial = not re.search(r"[^.!?:|;\s]\s+$", text[: match.start()])
        if (
            words
            and not known & set(words)
            and not is_place
            and strip_accents(words[0]) not in MONTHS
            # The first word of a sentence is always capitalized.
            and (len(words) > 1 or not is_initial)
        ):
            return True
    return False


def find_rows_of_reference(candidates: Sequence[QuoteCandidate], question: str) -> set[int]:
    """Return the rows that only speak of the person before or after whom the question asks, or of
    one on the other side of it.
    """
    reference = find_reference(question)
    if reference is None:
        return set()
    texts = [candidate.readable_text for candidate in candidates]
    name_words = set(split_words(reference.name))
    about = {row for row, text in enumerate(texts) if name_words <= set(split_words(text))}
    others = {
        row for row, text in enumerate(texts) if is_other_person_named(text, reference, question)
    }
    years = [[int(year) for year in _YEAR.findall(text)] for text in texts]
    own_years = [year for row in about - others for year in years[row]]

    def is_on_other_side(row: int) -> bool:
        if not (own_years and years[row]) or row in about:
            return False
        if reference.is_before:
            return min(years[row]) >= max(own_years)
        return max(years[row]) <= min(own_years)

    return (about - others) | {row for row in others if is_on_other_side(row)}


Label = tuple[str, ...]
"""The parts of a code behind its first letters: ("3", "20") of KV3-20."""
Designations = Mapping[str, frozenset[Label]]
"""Labels by the head."""
Relation = Literal["held", "other"]

_FIRST_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
_SIGNS = re.compile(r"(?:[^\w]|_)+")
# "Which tank holds more than T-902?" needs what is said of the others.
_RELATIVE = re.compile(
    r"\b(?:than|other|others|another|besides|except|instead|unlike|versus|vs"
    r"|outr[oa]s?|além|exceto|diferente|otr[oa]s?|además|excepto|salvo|autres?|sauf|outre"
    r"|ander(?:e|en|er|es|s)|außer|statt|als)\b",
    re.I,
)


def find_designations(question: str) -> Designations:
    """Return what the question designates; nothing if it asks for others in comparison."""
    if _RELATIVE.search(question):
        return {}
    found: dict[str, set[Label]] = defaultdict(set)
    for noun, label in find_labels(question):
        found[stem_word(noun)].add((_normalize_part(label),))
    _add_codes(found, question)
    return {head: frozenset(labels) for head, labels in found.items()}


def index_designations(text: str) -> Designations:
    """Return the designations that the text has."""
    text = strip_accents(fold_signs(text))
    found: dict[str, set[Label]] = defaultdict(set)
    # The question has the same words before its number: "seats 30" in "Which hall seats 30 people?"
    for head, labels in index_labels(text, includes_counts=True).items():
        found[head].update((_normalize_part(label),) for label in labels)
    _add_codes(found, text)
    return {head: frozenset(labels) for head, labels in found.items()}


def _add_codes(found: dict[str, set[Label]], text: str) -> None:
    for code in list_codes(text):
        first, *parts = _SIGNS.split(strip_accents(fold_signs(code.lower())))
        letters = _FIRST_LETTERS.match(first)
        if letters is None:
            # A code that begins with digits is of the kind of its form: 12-AB-34 and 17-CD-90.
            head = "-".join(_DIGITS.sub("0", part) for part in (first, *parts))
            found[head].add(("-".join((first, *parts)),))
            continue
        rest = first[letters.end() :]
        label = [rest, *parts] if rest else parts
        found[stem_word(letters.group())].add(tuple(map(_normalize_part, label)))


def _normalize_part(part: str) -> str:
    return str(int(part)) if part.isdecimal() else part.lower()


def _is_same_or_part(label: Label, other: Label) -> bool:
    """Tell whether they are one, or one is a part of the other: KV3-20 is a KV3."""
    length = min(len(label), len(other))
    return label[:length] == other[:length]


def relate_candidates(
    candidates: Sequence[QuoteCandidate], asked: Designations
) -> list[dict[str, Relation]]:
    """Return for each candidate, by the head, whether it is about what is asked for or another.

    A sentence without a designation is about that of the sentence before it in its paragraph, else
    about that of the line that introduces it, its innermost heading, or the document's title.
    """
    indexed: dict[str, Designations] = {}

    def read(text: str) -> Designations:
        if text not in indexed:
            indexed[text] = index_designations(text)
        return indexed[text]

    relations: list[dict[str, Relation]] = []
    for row, candidate in enumerate(candidates):
        own = _relate([candidate.readable_text], asked, read)
        if row and _is_next_sentence(candidates[row - 1], candidate):
            own = relations[row - 1] | own
        above = [candidate.lead_in_text, *reversed(candidate.section.split(" > "))]
        inherited = _relate([*above, candidate.chunk.title or ""], asked, read)
        relations.append(inherited | own)
    return relations


def _relate(
    texts: Iterable[str], asked: Designations, read: Callable[[str], Designations]
) -> dict[str, Relation]:
    relations: dict[str, Relation] = {}
    for text in texts:
        found = read(text)
        for head, labels in asked.items():
            if head in found:
                is_held = any(
                    _is_same_or_part(label, other) for label in labels for other in found[head]
                )
                relations.setdefault(head, "held" if is_held else "other")
    return relations


def _is_next_sentence(previous: QuoteCandidate, candidate: QuoteCandidate) -> bool:
    return (
        previous.chunk.chunk_id == candidate.chunk.chunk_id
        and not previous.is_row
        and not candidate.is_row
        and previous.end <= candidate.start
        and "\n" not in candidate.chunk.text[previous.end : candidate.start]
    )


# Far behind every sentence: such a row or sentence is never quoted.
EXCLUDED_DISTANCE = 100.0


def demote_rows(
    candidates: Sequence[QuoteCandidate], plan: QueryPlan, scores: Sequence[float]
) -> tuple[float, ...]:
    """Rank rows and sentences last that are not about what the question names."""
    question = plan.question
    demoted = (
        find_other_rows(candidates, plan),
        find_others_of_kind(candidates, question),
        find_rows_of_reference(candidates, question),
        find_excluded(candidates, question),
    )
    return tuple(
        score - EXCLUDED_DISTANCE * sum(row in rows for rows in demoted)
        for row, score in enumerate(scores)
    )


def find_other_rows(candidates: Sequence[QuoteCandidate], plan: QueryPlan) -> set[int]:
    """Return rows of a table where another row of it names what the question names, and they name
    something else in its place: the value of P11 is none of P12.
    """
    terms = find_question_terms(plan.question, plan.language)
    labels = find_labels(plan.question)
    if not (terms.identifiers or terms.names or labels):
        return set()

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
    return {
        row
        for row, own in held.items()
        if any(
            own < held[other]
            and candidates[row].chunk.document_id == candidates[other].chunk.document_id
            and candidates[row].header == candidates[other].header
            and _names_another(candidates[row], candidates[other], held[other] - own, list_held)
            for other in named_rows
        )
    }


def find_others_of_kind(candidates: Sequence[QuoteCandidate], question: str) -> set[int]:
    """Return sentences about another thing of the kind that the question designates, where others
    are about that thing itself.
    """
    asked = find_designations(question)
    if not asked:
        return set()
    relations = relate_candidates(candidates, asked)
    held = {head for relation in relations for head, value in relation.items() if value == "held"}
    return {
        row
        for row, relation in enumerate(relations)
        # About another thing of the kind, and not what is asked for.
        if "held" not in relation.values()
        and held & {head for head, value in relation.items() if value == "other"}
    }


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


def find_excluded(candidates: Sequence[QuoteCandidate], question: str) -> set[int]:
    """Return sentences that lack a quoted phrase of the question where others hold it, or hold a
    word that the question excludes by a minus sign.
    """
    phrases, excluded = find_phrases(question), find_excluded_words(question)
    if not (phrases or excluded):
        return set()
    texts = [
        [candidate.readable_text, candidate.lead_in_text, candidate.section]
        for candidate in candidates
    ]
    phrases = [phrase for phrase in phrases if any(holds_phrase(unit, phrase) for unit in texts)]
    return {
        row
        for row, unit in enumerate(texts)
        if not all(holds_phrase(unit, phrase) for phrase in phrases)
        or (excluded and any(map(index_text_terms(unit).holds_name, excluded)))
    }
