"""Other names that a text gives to its entities: abbreviations and defined terms.

A name and its alias are paired only on evidence: the letters of an abbreviation begin the words of
the name, and a defined term is a part of the name or the role of a party.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engines.extract.relations import NAME_TYPES
from engines.extract.values import EntitySpan
from engines.extract.word_lists import (
    DEFINITION_WORDS,
    GIVEN_NAMES,
    ORG_HEADS,
    PARTY_ROLES,
    SMALL_WORDS,
    THING_HEADS,
)
from engines.language import COMPANY_FORMS, fold_name
from schemas.entities import ABBREVIATION, DEFINED_TERM

MAX_DISTANCE_CHARACTERS = 300
"""Longest distance from a name to the bracket that defines its alias, such as an address."""
MAX_TERM_WORDS = 6
_CUE = (
    r"\b(?:here(?:in)?after|doravante|adiante|nachfolgend|nachstehend|im\sFolgenden"
    r"|referred\sto\s(?:herein\s|in\sthis\s\w{1,20}\s)?as)\b"
)
# Every repetition is bounded, so that the search stays linear.
_DEFINITION = re.compile(
    rf"\((?P<bracket>[^()|]{{2,160}}+)\)|(?P<cue>{_CUE})(?=(?P<rest>[^().;|]{{2,120}}+))"
    r"|\s[-–—]\s(?P<dash>(?-i:[A-Z]{2,10}))\b",
    re.IGNORECASE,
)
_CUE_IN_BRACKET = re.compile(_CUE, re.IGNORECASE)
_QUOTED = re.compile(
    r"(?:[\"“”„«]|'')[\s*_]{0,4}(?P<double>[^\"“”„«»'()|]{2,60}?)[\s*_,]{0,4}(?:[\"“”»]|'')"
    r"|‘[\s*_]{0,4}(?P<single>[^‘’()|]{2,60}?)[\s*_,]{0,4}’"
)
_ABBREVIATION = re.compile(r"(?=[^A-Z]{0,4}[A-Z][^A-Z]{0,4}[A-Z])[A-Z0-9][A-Za-z0-9&./-]{1,11}")
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_ADJACENT = re.compile(r"[\s,*_\"“”»®™]{0,6}")
_CLAUSE_END = re.compile(r";|\||\n\s*\n")
_NEXT_PARTY = re.compile(
    r"\b(?:and|between|among|by|e|entre|und|zwischen)[\s:*_]{1,4}(?:\([a-z0-9]{1,3}\)\s?)?$", re.I
)
_APPOSITION = re.compile(
    r"[\s*_\"“”]{0,4}(?:[,(]|(?:an?|uma?|eine?|having|organized|located|with|com|mit)\b)", re.I
)
_VERB = re.compile(
    r"\b(?:shall|will|may|must|agrees?|hereby|has|have|had|desires?|wishes|is|are|was|were|"
    r"deverá|deve|pode|tem|é|são|wird|soll|muss|hat|ist)\b",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"(?:the|an?|os?|as?|der|die|das)\s+", re.IGNORECASE)
# After a comma: "entre a Norte Energia" is no indefinite article.
_INDEFINITE = re.compile(r",\s(?:an?|uma?|eine?)\s$", re.IGNORECASE)
_GENERAL_WORDS = ORG_HEADS | PARTY_ROLES | THING_HEADS
_NUMBERED_PARTY = re.compile(r"(?:party|parte|partei) [a-z0-9]")


@dataclass(frozen=True, slots=True)
class AliasCandidate:
    """An alias of `subject` at `[start, end)` of the text; `property` says which kind it is."""

    subject: EntitySpan
    property: str
    start: int
    end: int


def find_aliases(text: str, spans: Sequence[EntitySpan]) -> Iterator[AliasCandidate]:
    """Yield the aliases that brackets and phrases such as "hereinafter" define, each once.

    `spans` are the names and values of the text, in order.
    """
    names = [
        span
        for span in spans
        # "A Nevada Corporation" is no name, nor is a lone "L.L.C.".
        if span.type in NAME_TYPES
        and span.key not in COMPANY_FORMS
        and not _INDEFINITE.search(text, max(0, span.start - 7), span.start)
    ]
    if not names:
        return
    seen: set[tuple[str, str]] = set()
    starts, ends = [span.start for span in names], [span.end for span in names]
    clause_start = 0
    for definition in _DEFINITION.finditer(text):
        position = definition.start()
        window_start = max(clause_start, position - MAX_DISTANCE_CHARACTERS)
        last = bisect_right(ends, position)
        candidates = names[bisect_left(starts, window_start) : last]
        if not candidates:
            continue
        is_quoted = bool(_QUOTED.search(text, *definition.span(definition.lastgroup or 0)))
        found = [
            AliasCandidate(*pair, start, end)
            for start, end in _find_terms(text, definition)
            if (pair := _pair(text, candidates, definition, text[start:end], is_quoted))
        ]
        if not found and last < len(names):
            found = _find_expansion(text, candidates[-1], names[last], definition)
        if found or is_quoted:
            # A later bracket does not name the party before this one.
            clause_start = definition.end()
        for alias in found:
            key = (alias.subject.key, fold_name(text[alias.start : alias.end]))
            if key not in seen and key[0] != key[1]:
                seen.add(key)
                yield alias


def _find_expansion(
    text: str, abbreviation: EntitySpan, name: EntitySpan, definition: re.Match[str]
) -> list[AliasCandidate]:
    """Return the abbreviation if the bracket holds only the name: `ECB (European Central Bank)`."""
    start, end = abbreviation.start, abbreviation.end
    is_expansion = (name.start, name.end) == definition.span("bracket") and (
        _ADJACENT.fullmatch(text, end, definition.start())
        and is_abbreviation(text[start:end], text[name.start : name.end])
    )
    return [AliasCandidate(name, ABBREVIATION, start, end)] if is_expansion else []


def _find_terms(text: str, definition: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the terms that a bracket or phrase defines; none if it says more."""
    content_start, content_end = definition.span(definition.lastgroup or 0)
    cue = definition["bracket"] and _CUE_IN_BRACKET.search(text, content_start, content_end)
    if cue:
        content_start = cue.end()
    position, terms = content_start, list[tuple[int, int]]()
    for quoted in _QUOTED.finditer(text, content_start, content_end):
        if not _is_definition(text[position : quoted.start()]):
            break
        start, end = quoted.span(quoted.lastgroup or 0)
        article = _ARTICLE.match(text, start, end)
        terms.append((article.end() if article else start, end))
        position = quoted.end()
    if not terms:
        words = _WORD.finditer(text, content_start, content_end)
        # `(ECB)`, `(the Licensor)`, `hereinafter the Licensor`.
        word = next((word for word in words if not _is_definition(word[0])), None)
        if word is None:
            return
        position = word.end()
        terms.append(word.span())
    # In a phrase such as "hereinafter X", the sentence continues after the term.
    if cue or definition["rest"] or _is_definition(text[position:content_end]):
        yield from terms


def _is_definition(text: str) -> bool:
    """Tell whether the text has no other words than those of a definition."""
    text = text.lower().replace("together with", "")
    return all(word[0] in DEFINITION_WORDS for word in _WORD.finditer(text))


def _pair(
    text: str,
    candidates: Sequence[EntitySpan],
    definition: re.Match[str],
    alias: str,
    is_quoted: bool,
) -> tuple[EntitySpan, str] | None:
    """Return the name before the definition that the alias stands for, and the kind of alias."""
    position, words = definition.start(), fold_name(alias).split()
    if not words or len(words) > MAX_TERM_WORDS or alias[0].islower():
        return None
    nearest = candidates[-1]
    is_adjacent = bool(_ADJACENT.fullmatch(text, nearest.end, position))
    if is_adjacent and is_abbreviation(alias, text[nearest.start : nearest.end]):
        return nearest, ABBREVIATION
    if definition["dash"]:
        return None
    parties = list(_list_parties(text, candidates, position))
    # Without quotation marks, `(as Louis)` defines nothing.
    similar = [span for span in parties if is_quoted and _is_part(words, span.key.split())]
    if len({span.key for span in similar}) == 1:
        return similar[-1], DEFINED_TERM
    if similar or not (words[-1] in PARTY_ROLES or _NUMBERED_PARTY.fullmatch(" ".join(words))):
        return None
    companies = [span for span in parties if _is_company(text[span.start : span.end])]
    for subject in companies or ([nearest] if is_adjacent and nearest in parties else []):
        # With two companies in one clause ("A, a subsidiary of B"), the role may be either's.
        if {span.key for span in companies} <= {subject.key} and _is_apposition(
            text[subject.end : position]
        ):
            return subject, DEFINED_TERM
    return None


def _list_parties(
    text: str, candidates: Sequence[EntitySpan], position: int
) -> Iterator[EntitySpan]:
    """Yield the organizations and persons of the last clause, after a last `and` or `between`."""
    parties: list[EntitySpan] = []
    previous_end = candidates[0].start
    for span in candidates:
        if _CLAUSE_END.search(text, previous_end, span.start):
            parties = []
        if span.type == "ORG" or (
            span.type == "PERSON" and text[span.start : span.end].split()[0].lower() in GIVEN_NAMES
        ):
            if _NEXT_PARTY.search(text, max(0, span.start - 20), span.start):
                parties = []
            parties.append(span)
        previous_end = span.end
    if not _CLAUSE_END.search(text, previous_end, position):
        yield from parties


def _is_part(words: Sequence[str], name_words: Sequence[str]) -> bool:
    """Tell whether the words are some, not all, of the name's and not only general ones."""
    return (
        len(words) < len(name_words)
        and any(word not in _GENERAL_WORDS for word in words)
        and len(" ".join(words)) > 2
        and any(
            list(name_words[start : start + len(words)]) == list(words)
            for start in range(len(name_words) - len(words) + 1)
        )
    )


def _is_company(name: str) -> bool:
    return re.sub(r"[.,/]", "", name.split()[-1].lower()) in COMPANY_FORMS


def _is_apposition(gap: str) -> bool:
    return bool(_ADJACENT.fullmatch(gap)) or (
        bool(_APPOSITION.match(gap)) and not _VERB.search(gap)
    )


def is_abbreviation(alias: str, name: str) -> bool:
    """Tell whether the letters of the alias begin the words of the name, in order.

    Small words may be left out, as may a company form and a last `of …`. Every other word gives at
    least one letter: `ANVISA` is `Agência Nacional de Vigilância Sanitária`.
    """
    if not _ABBREVIATION.fullmatch(alias):
        return False
    letters = "".join(filter(str.isalnum, _fold(alias)))
    words = [_fold(word) for word in re.split(r"[\W_]+", name) if word]
    significant = [word for word in words if word not in SMALL_WORDS]
    variants = [words, significant]
    if significant and significant[-1] in COMPANY_FORMS:
        variants.append(significant[:-1])
    if len(letters) > 2:
        # The National Film Board of Canada is the NFB.
        variants += [
            [word for word in words[:number] if word not in SMALL_WORDS]
            for number, word in enumerate(words)
            if word in SMALL_WORDS
        ][-1:]
    return any(len(variant) > 1 and _begins(letters, variant) for variant in variants)


def _begins(letters: str, words: Sequence[str]) -> bool:
    """Tell whether the letters are a beginning of each word, one after the other."""
    positions = {0}
    for word in words:
        positions = {
            position + length
            for position in positions
            for length in range(1, len(letters) - position + 1)
            if word.startswith(letters[position : position + length])
        }
    return len(letters) in positions


def _fold(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).lower()
    return "".join(character for character in plain if not unicodedata.combining(character))
