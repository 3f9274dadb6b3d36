"""Rule-based extraction of names, relations and claims from English and Portuguese text.

Names are runs of capitalized words, classified by word lists.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from engines.extract.aliases import find_aliases
from engines.extract.relations import find_claims, find_relations, pick_type, vote_types
from engines.extract.values import EntitySpan, apply_raw_value, find_values
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
from engines.language import fold_name
from schemas.entities import ABBREVIATION, DEFINED_TERM
from schemas.generations import EntitySchema
from schemas.ids import fingerprint
from schemas.values import ChildChunk, Claim, Extraction, Mention, ParentChunk, Relation

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


VERSION = 2
EXTRACTOR_NAME = "rules"
_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"”»)]))\s++(?=[\"“«(]?[A-ZÀ-Ý0-9])|"
    r"(?<!\s)\s*\n[\s>#*-]*+|(?:(?<!\s)\s++)?\|\s*+"
)
_ABBREVIATION_END = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Dra|Sr|Sra|Prof|Art|art|No|nº|n|Inc|Ltd|Co|Corp|vs|fls|pp?|[A-Z]))\.$"
)


class RuleExtractor:
    """Extractor by rules, in a thread.

    Within one call a name has the same type everywhere (see `vote_types`).
    """

    fingerprint = fingerprint(EXTRACTOR_NAME, VERSION)

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        return await asyncio.to_thread(extract_by_rules, parents)

    def with_schema(self, schema: EntitySchema) -> RestrictedRules:
        return RestrictedRules(schema)


class RestrictedRules(RuleExtractor):
    """Extractor by rules that keeps what a schema names, and aliases."""

    def __init__(self, schema: EntitySchema) -> None:
        self._schema = schema
        self.fingerprint = fingerprint(RuleExtractor.fingerprint, dict(schema))

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        found, schema = await super().extract(parents, language), self._schema
        properties = (*schema.properties, ABBREVIATION, DEFINED_TERM)
        return Extraction(
            mentions=[item for item in found.mentions if item.type in schema.entities],
            relations=[
                item
                for item in found.relations
                if {item.subject[0], item.object[0]} <= set(schema.entities)
                and (not schema.relations or item.type in schema.relations)
            ],
            claims=[
                item
                for item in found.claims
                if item.subject[0] in schema.entities
                and (not schema.properties or item.property in properties)
            ],
        )


def extract_by_rules(parents: Sequence[ParentChunk]) -> Extraction:
    found_sentences: list[_Sentence] = []
    for parent in parents:
        children = sorted(parent.children, key=lambda child: child.char_start)
        raw_values = {
            cell.char_start: cell.raw_value
            for child in children
            for span in child.spans
            for cell in span.raw_cells or ()
        }
        for start, end in split_sentences(parent.text):
            text = parent.text[start:end]
            if spans := _find_spans(text, raw_values.get(parent.char_start + start)):
                found_sentences.append(
                    _Sentence(text, parent.char_start + start, parent, children, spans)
                )
    sentences = _unify_types(found_sentences)
    return Extraction(
        mentions=[mention for sentence in sentences for mention in sentence.iter_mentions()],
        relations=[relation for sentence in sentences for relation in sentence.iter_relations()],
        claims=[
            *(claim for sentence in sentences for claim in sentence.iter_claims()),
            *_iter_aliases(sentences),
        ],
    )


def _iter_aliases(sentences: Sequence[_Sentence]) -> Iterator[Claim]:
    """Yield a claim for each alias that a passage defines.

    Not by sentence: a definition may stand in the next line.
    """
    for _, group in groupby(sentences, key=lambda sentence: id(sentence.parent)):
        passage = list(group)
        parent, children = passage[0].parent, passage[0].children
        spans = [span for sentence in passage for span in sentence.list_spans_in_parent()]
        for alias in find_aliases(parent.text, spans):
            start, end = parent.char_start + alias.start, parent.char_start + alias.end
            if child := _find_child(children, start, end):
                yield Claim(
                    chunk_id=child.id,
                    subject=(alias.subject.type, alias.subject.key),
                    property=alias.property,
                    value=parent.text[alias.start : alias.end],
                    char_start=start,
                    char_end=end,
                )


def _find_child(children: Sequence[ChildChunk], start: int, end: int) -> ChildChunk | None:
    index = bisect_right(children, start, key=lambda child: child.char_start) - 1
    child = children[index] if index >= 0 else None
    return child if child and end <= child.char_end else None


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence at `start` of the document's Markdown; `spans` count from there."""

    text: str
    start: int
    parent: ParentChunk
    children: Sequence[ChildChunk]
    spans: tuple[EntitySpan, ...]

    def iter_mentions(self) -> Iterator[Mention]:
        for span in self.spans:
            if child := self._find_child(span):
                start, end = self.start + span.start, self.start + span.end
                yield Mention(
                    chunk_id=child.id,
                    name=self.text[span.start : span.end],
                    key=span.key,
                    type=span.type,
                    char_start=start,
                    char_end=end,
                )

    def iter_relations(self) -> Iterator[Relation]:
        for relation in find_relations(self.text, self._list_spans_in_children()):
            if child := self._find_child(relation.subject):
                subject = (relation.subject.type, relation.subject.key)
                object_key = (relation.object.type, relation.object.key)
                yield Relation(
                    chunk_id=child.id,
                    subject=subject,
                    type=relation.type,
                    object=object_key,
                    weight=relation.weight,
                    extractor=EXTRACTOR_NAME,
                    char_start=self.start,
                    char_end=self.end,
                )

    def iter_claims(self) -> Iterator[Claim]:
        for claim in find_claims(self.text, self._list_spans_in_children()):
            if child := self._find_child(claim.value):
                value = self.text[claim.value.start : claim.value.end]
                subject = (claim.subject.type, claim.subject.key)
                yield Claim(
                    chunk_id=child.id,
                    subject=subject,
                    property=claim.property,
                    value=value,
                    char_start=self.start + claim.value.start,
                    char_end=self.start + claim.value.end,
                )

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def _list_spans_in_children(self) -> list[EntitySpan]:
        # A span that crosses children is no mention, so no relation or claim may refer to it.
        return [span for span in self.spans if self._find_child(span)]

    def list_spans_in_parent(self) -> list[EntitySpan]:
        """Return the spans that mentions may refer to, counted from the start of the parent."""
        offset = self.start - self.parent.char_start
        return [
            replace(span, start=span.start + offset, end=span.end + offset)
            for span in self._list_spans_in_children()
        ]

    def _find_child(self, span: EntitySpan) -> ChildChunk | None:
        return _find_child(self.children, self.start + span.start, self.start + span.end)


def split_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of sentences, lines and table cells, none of which a name may cross."""
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if (
            # A bounded window keeps the scan linear.
            not _ABBREVIATION_END.search(text[max(start, match.start() - 6) : match.start()])
            or "\n" in match[0]
        ):
            yield start, match.start()
            start = match.end()
    yield start, len(text)


def _find_spans(text: str, raw_value: str | None) -> tuple[EntitySpan, ...]:
    """Return values and names in order; names that overlap a value are dropped.

    The stored value of a cell with a single value is the one that counts.
    """
    value_spans = list(find_values(text))
    if raw_value is not None and len(value_spans) == 1:
        value_spans = [apply_raw_value(value_spans[0], raw_value)]
    ends = [value.end for value in value_spans]
    name_spans = [
        span
        for span in find_names(text)
        if (next_value := bisect_right(ends, span.start)) == len(value_spans)
        or span.end <= value_spans[next_value].start
    ]
    return tuple(
        sorted(
            (span for span in [*value_spans, *name_spans] if span.key), key=lambda span: span.start
        )
    )


def _unify_types(sentences: Sequence[_Sentence]) -> list[_Sentence]:
    type_by_key = vote_types(
        (span.key, span.type, sentence.text[span.start : span.end])
        for sentence in sentences
        for span in sentence.spans
    )
    return [
        replace(
            sentence,
            spans=tuple(
                replace(span, type=pick_type(span.type, span.key, type_by_key))
                for span in sentence.spans
            ),
        )
        for sentence in sentences
    ]
