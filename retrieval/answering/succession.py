"""Questions for a predecessor or successor: "Who was chair before Ines Falk?"

The named person is where to look, and never the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from retrieval.question.answer_values import VALUE_PATTERNS, detect_answer_type
from retrieval.question.words import MONTHS, is_function_word, split_words, strip_accents
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


def find_rows_to_demote(candidates: Sequence[QuoteCandidate], question: str) -> set[int]:
    """Return the rows that only speak of the named person, or of one on the other side of it."""
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


def lacks_other_person(texts: Sequence[str], question: str) -> Reference | None:
    """Return the person whose predecessor or successor the question asks for, if no text names
    another person.
    """
    reference = find_reference(question)
    if reference is None or any(is_other_person_named(text, reference, question) for text in texts):
        return None
    return reference
