"""Names by their capitals: runs of capitalised words with what joins them, and what kind of thing each is likely to be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engines.extract.values import Found
from engines.extract.words import (
    ABBREVIATED_TITLES,
    CONNECTORS,
    FORMS,
    GIVEN_NAMES,
    HEADS,
    LABELS,
    MONTHS,
    ORG_HEADS,
    PLACE_HEADS,
    PLACE_PREPOSITIONS,
    PLACES,
    STARTERS,
    THING_HEADS,
    TITLES,
    WEEKDAYS,
)
from engines.names import fold_name

_WORD = re.compile(r"(?:[A-Z]\.){2,}|S[./]A\.?|[^\W\d_](?:[\w]|['’][^\W\d_]|-(?=\w)|(?<=\b[A-Z])\.(?=\s[A-Z]))*|\d+|&")
_GAP = re.compile(r"[\s]{1,3}|,\s(?=(?:Inc|Ltd|LLC|Lda|S\.A|Ltda|Corp)\b)")
_JOINS_INSTITUTIONS = frozenset({"of", "the", "for", "and", "e", "para"})
_TITLE_DOT = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Dra|Sr|Sra|Prof)\.$")
_ROMAN = re.compile(r"[IVXLC]{1,7}")
_LONGEST = 10


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int

    @property
    def plain(self) -> str:
        return self.text.lower().rstrip(".")

    @property
    def capital(self) -> bool:
        return self.text[0].isupper()


def names(text: str) -> Iterator[Found]:
    """Names in one sentence, in order. A sentence in capitals has none, for nothing marks them there."""
    tokens = [_Token(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]
    if _shouts(tokens):
        return
    at = 0
    while at < len(tokens):
        end = _run(text, tokens, at)
        if end > at:
            yield from _named(text, tokens, at, end)
        at = max(end, at + 1)


def _shouts(tokens: Sequence[_Token]) -> bool:
    words = [token.text for token in tokens if len(token.text) > 1 and token.text.isalpha()]
    return len(words) > 3 and sum(map(str.isupper, words)) > 0.6 * len(words)


def _run(text: str, tokens: Sequence[_Token], at: int) -> int:
    """Where the run of name words that begins at `at` ends; `at` itself if none does."""
    if not _begins(tokens, at):
        return at
    end, institution = at + 1, tokens[at].plain in HEADS
    while end < len(tokens) and end - at < _LONGEST:
        step = _step(text, tokens, end, institution)
        if not step:
            break
        end += step
        institution |= tokens[end - 1].plain in HEADS
    return end


def _begins(tokens: Sequence[_Token], at: int) -> bool:
    token = tokens[at]
    if not token.capital or token.plain in WEEKDAYS or token.plain in MONTHS or _ROMAN.fullmatch(token.text):
        return False
    if token.plain not in STARTERS or (token.text.isupper() and len(token.text) > 2):
        return True
    return at + 1 < len(tokens) and tokens[at + 1].capital and (at > 0 or f"{token.plain} {tokens[at + 1].plain}" in PLACES)


def _step(text: str, tokens: Sequence[_Token], at: int, institution: bool) -> int:
    """How many tokens the run grows by: a capitalised word, or up to two small ones with a capitalised word behind."""
    if not _joined(text, tokens, at):
        return 0
    token = tokens[at]
    if token.capital or (token.text.isdigit() and institution and len(token.text) < 4):
        return 0 if token.plain in MONTHS else 1
    for small in (1, 2):
        after = at + small
        if not _joins(tokens[at + small - 1], institution) or after >= len(tokens) or not _joined(text, tokens, after):
            return 0
        if tokens[after].capital:
            return small + 1
    return 0


def _joins(token: _Token, institution: bool) -> bool:
    return token.text in CONNECTORS or token.text == "&" or (institution and token.text in _JOINS_INSTITUTIONS)


def _joined(text: str, tokens: Sequence[_Token], at: int) -> bool:
    gap = text[tokens[at - 1].end : tokens[at].start]
    return _GAP.fullmatch(gap) is not None or (
        gap in {". ", "' "} and (len(tokens[at - 1].text) == 1 or bool(_TITLE_DOT.search(text[max(0, tokens[at - 1].end - 5) : tokens[at - 1].end + 1])))
    )


def _named(text: str, tokens: Sequence[_Token], at: int, end: int) -> Iterator[Found]:
    at = next((place + 1 for place in range(end - 2, at, -1) if tokens[place].plain in ABBREVIATED_TITLES), at)
    titled = at > 0 and tokens[at - 1].plain in TITLES
    while end - at > 1 and tokens[at].plain in TITLES:
        at, titled = at + 1, True
    words = tokens[at:end]
    start, stop = words[0].start, words[-1].end
    if text[stop : stop + 1] == "." and words[-1].plain in FORMS and words[-1].text[-1] != ".":
        stop += 1
    name = text[start:stop]
    if _is_name(words, at):
        yield Found(start, stop, _kind(words, tokens[at - 1].plain if at else "", titled), fold_name(name))


def _is_name(words: Sequence[_Token], at: int) -> bool:
    """A single capitalised word that opens a sentence is more often no name; an acronym, a known place or given name is."""
    first = words[0]
    if len(words) > 1:
        return True
    if len(first.text) < 2 or first.plain in TITLES or first.plain in LABELS:
        return False
    return at > 0 or first.plain in PLACES or first.plain in GIVEN_NAMES or (first.text.isupper() and len(first.text) <= 6)


def _kind(words: Sequence[_Token], before: str, titled: bool) -> str:
    plain = [word.plain for word in words]
    whole = " ".join(plain)
    if plain[-1] in FORMS or words[-1].text in FORMS:
        return "ORG"
    if whole in PLACES or plain[0] in PLACE_HEADS:
        return "LOC"
    if titled:
        return "PERSON"
    if any(word in ORG_HEADS for word in plain):
        return "ORG"
    if plain[0] in THING_HEADS or plain[-1] in THING_HEADS:
        return "MISC"
    if plain[0] in GIVEN_NAMES:
        return "PERSON"
    if any(word.text.isupper() and 2 <= len(word.text) <= 6 for word in words):
        return "ORG"
    if plain[-1] in PLACE_HEADS or (len(words) == 1 and before in PLACE_PREPOSITIONS):
        return "LOC"
    if 2 <= len(words) <= 5 and not any(mark in whole for mark in (" of ", "&")):
        return "PERSON"
    return "MISC"
