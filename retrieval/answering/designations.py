"""Tell things of one kind apart that a number, letter or code names: T-902 and T-903, Aurora 5 and
Aurora 7, hall B and hall C.

A designation has a head, which says the kind, and a label. What is said of another label of the
same head is not said of this one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from retrieval.question.question_terms import find_labels, index_labels, list_codes
from retrieval.question.words import fold_signs, stem_word, strip_accents
from retrieval.ranking.quote_candidates import QuoteCandidate

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


def is_about_another(relation: Mapping[str, Relation]) -> bool:
    """Tell whether a candidate is about another thing of the kind, and not what is asked for."""
    return "other" in relation.values() and "held" not in relation.values()
