"""Rule-based extraction of names, relations and claims from English and Portuguese text."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from engines.extract.aliases import find_aliases
from engines.extract.capitalized_names import find_names
from engines.extract.relations import find_claims, find_relations, pick_type, vote_types
from engines.extract.values import EntitySpan, apply_raw_value, find_values
from schemas.ids import fingerprint
from schemas.values import ChildChunk, Claim, Extraction, Mention, ParentChunk, Relation

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
                subject, object_key = (
                    (relation.subject.type, relation.subject.key),
                    (relation.object.type, relation.object.key),
                )
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
