"""Names by capitalization: runs of capitalized words, classified by word lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engines.extract.values import EntitySpan
from engines.extract.word_lists import (
    ABBREVIATED_TITLES,
    COMPANY_SUFFIXES,
    CONNECTORS,
    GIVEN_NAMES,
    INSTITUTION_HEADS,
    LABELS,
    MONTHS,
    ORG_HEADS,
    PLACE_HEADS,
    PLACE_PREPOSITIONS,
    PLACES,
    SENTENCE_STARTERS,
    THING_HEADS,
    TITLES,
    WEEKDAYS,
)
from engines.name_folding import fold_name

_WORD = re.compile(
    r"(?:[A-Z]\.){2,}|S[./]A\.?|"
    r"[^\W\d_](?:[\w]|['’][^\W\d_]|-(?=\w)|(?<=\b[A-Z])\.(?=\s[A-Z]))*|\d+|&"
)
_GAP = re.compile(r"[\s]{1,3}|,\s(?=(?:inc|ltd|llc|l\.l\.c|lda|s\.a|ltda|corp)\b)", re.IGNORECASE)
_INSTITUTION_JOINERS = frozenset({"of", "the", "for", "and", "e", "para"})
_TITLE_DOT = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Dra|Sr|Sra|Prof)\.$")
_ROMAN = re.compile(r"[IVXLC]{1,7}")
_MAX_NAME_TOKENS = 10


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int

    @property
    def lower_form(self) -> str:
        return self.text.lower().rstrip(".")

    @property
    def is_capitalized(self) -> bool:
        return self.text[0].isupper()


def find_names(text: str) -> Iterator[EntitySpan]:
    """Yield the names in one sentence in order.

    A sentence in capitals yields none, because nothing marks names there.
    """
    tokens = [_Token(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]
    words = [token.text for token in tokens if len(token.text) > 1 and token.text.isalpha()]
    if len(words) > 3 and sum(map(str.isupper, words)) > 0.6 * len(words):
        return
    start = 0
    while start < len(tokens):
        end = _find_run_end(text, tokens, start)
        if end > start:
            yield from _iter_name(text, tokens, start, end)
        start = max(end, start + 1)


def _find_run_end(text: str, tokens: Sequence[_Token], start: int) -> int:
    """Return the end of the run of name words that begins at `start`, or `start` if none does."""
    if not _can_start_name(tokens, start):
        return start
    end, is_institution = start + 1, tokens[start].lower_form in INSTITUTION_HEADS
    while end < len(tokens) and end - start < _MAX_NAME_TOKENS:
        token_count = _count_next_tokens(text, tokens, end, is_institution)
        if not token_count:
            break
        end += token_count
        is_institution |= tokens[end - 1].lower_form in INSTITUTION_HEADS
    return end


def _can_start_name(tokens: Sequence[_Token], index: int) -> bool:
    token = tokens[index]
    if (
        not token.is_capitalized
        or token.lower_form in WEEKDAYS
        or token.lower_form in MONTHS
        or _ROMAN.fullmatch(token.text)
    ):
        return False
    # A sentence starter counts in capitals, or in front of another capitalized word.
    if token.lower_form not in SENTENCE_STARTERS or (token.text.isupper() and len(token.text) > 2):
        return True
    return (
        index + 1 < len(tokens)
        and tokens[index + 1].is_capitalized
        and (index > 0 or f"{token.lower_form} {tokens[index + 1].lower_form}" in PLACES)
    )


def _count_next_tokens(
    text: str, tokens: Sequence[_Token], index: int, is_institution: bool
) -> int:
    """Return how many tokens extend the run.

    The run grows by a capitalized word, or by up to two joiners and a capitalized word.
    """
    if not _is_adjacent(text, tokens, index):
        return 0
    token = tokens[index]
    if token.is_capitalized or (token.text.isdigit() and is_institution and len(token.text) < 4):
        return 0 if token.lower_form in MONTHS else 1
    joiners = CONNECTORS | {"&"} | (_INSTITUTION_JOINERS if is_institution else frozenset())
    for n_small in (1, 2):
        next_index = index + n_small
        if (
            tokens[index + n_small - 1].text not in joiners
            or next_index >= len(tokens)
            or not _is_adjacent(text, tokens, next_index)
        ):
            return 0
        if tokens[next_index].is_capitalized:
            return n_small + 1
    return 0


def _is_adjacent(text: str, tokens: Sequence[_Token], index: int) -> bool:
    gap = text[tokens[index - 1].end : tokens[index].start]
    # Not of the gap alone: the expression looks at the word behind it.
    match = _GAP.match(text, tokens[index - 1].end)
    return (match is not None and match.end() == tokens[index].start) or (
        gap in {". ", "' "}
        and (
            len(tokens[index - 1].text) == 1
            or bool(
                _TITLE_DOT.search(
                    text[max(0, tokens[index - 1].end - 5) : tokens[index - 1].end + 1]
                )
            )
        )
    )


def _iter_name(
    text: str, tokens: Sequence[_Token], first_index: int, end: int
) -> Iterator[EntitySpan]:
    """Yield the name in a run, without titles in front, unless it is unlikely to be one."""
    first_index = next(
        (
            title_index + 1
            for title_index in range(end - 2, first_index, -1)
            if tokens[title_index].lower_form in ABBREVIATED_TITLES
        ),
        first_index,
    )
    has_title = first_index > 0 and tokens[first_index - 1].lower_form in TITLES
    while end - first_index > 1 and tokens[first_index].lower_form in TITLES:
        first_index, has_title = first_index + 1, True
    words = tokens[first_index:end]
    start, stop = words[0].start, words[-1].end
    if (
        # The dot of `Inc.` belongs to the name.
        text[stop : stop + 1] == "."
        and words[-1].lower_form in COMPANY_SUFFIXES
        and words[-1].text[-1] != "."
    ):
        stop += 1
    name = text[start:stop]
    if _is_likely_name(words, first_index):
        yield EntitySpan(
            start,
            stop,
            _classify(words, tokens[first_index - 1].lower_form if first_index else "", has_title),
            fold_name(name),
        )


def _is_likely_name(words: Sequence[_Token], first_index: int) -> bool:
    first = words[0]
    if len(words) > 1:
        return True
    if len(first.text) < 2 or first.lower_form in TITLES or first.lower_form in LABELS:
        return False
    # Most single capitalized words at the start of a sentence are no names.
    return (
        first_index > 0
        or first.lower_form in PLACES
        or first.lower_form in GIVEN_NAMES
        or (first.text.isupper() and len(first.text) <= 6)
    )


def _classify(words: Sequence[_Token], previous_word: str, has_title: bool) -> str:
    lower_words = [word.lower_form for word in words]
    full_name = " ".join(lower_words)
    # From strong evidence to weak: the first that applies decides.
    if lower_words[-1] in COMPANY_SUFFIXES or words[-1].text in COMPANY_SUFFIXES:
        return "ORG"
    if full_name in PLACES or lower_words[0] in PLACE_HEADS:
        return "LOC"
    if has_title:
        return "PERSON"
    if any(word in ORG_HEADS for word in lower_words):
        return "ORG"
    if lower_words[0] in THING_HEADS or lower_words[-1] in THING_HEADS:
        return "MISC"
    if lower_words[0] in GIVEN_NAMES:
        return "PERSON"
    if any(word.text.isupper() and 2 <= len(word.text) <= 6 for word in words):
        return "ORG"
    if lower_words[-1] in PLACE_HEADS or (len(words) == 1 and previous_word in PLACE_PREPOSITIONS):
        return "LOC"
    if 2 <= len(words) <= 5 and not any(mark in full_name for mark in (" of ", "&")):
        return "PERSON"
    return "MISC"
