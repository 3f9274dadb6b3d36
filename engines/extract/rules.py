"""Names, relations and claims by rules, English and Portuguese, without a model."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engines.extract.capitalized_names import find_names
from engines.extract.relations import NAME_TYPES, find_claims, find_relations
from engines.extract.type_voting import vote_types
from engines.extract.values import EntitySpan, find_values
from schemas.ids import fingerprint
from schemas.values import ChildChunk, Claim, Extraction, Mention, ParentChunk, Relation

VERSION = 1
EXTRACTOR_NAME = "rules"
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"”»)]))\s++(?=[\"“«(]?[A-ZÀ-Ý0-9])|(?<!\s)\s*\n[\s>#*-]*+|(?:(?<!\s)\s++)?\|\s*+")
_ABBREVIATION_END = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Dra|Sr|Sra|Prof|Art|art|No|nº|n|Inc|Ltd|Co|Corp|vs|fls|pp?|[A-Z]))\.$")


class RuleExtractor:
    """The same name has the same kind throughout one call: the one that its fullest and most frequent spellings speak for. Works off the event loop."""

    fingerprint = fingerprint(EXTRACTOR_NAME, VERSION)

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        return await asyncio.to_thread(extract_by_rules, parents)


def extract_by_rules(parents: Sequence[ParentChunk]) -> Extraction:
    sentences = _unify_types([sentence for parent in parents for sentence in _iter_sentences(parent)])
    return Extraction(
        mentions=[mention for sentence in sentences for mention in sentence.iter_mentions()],
        relations=[relation for sentence in sentences for relation in sentence.iter_relations()],
        claims=[claim for sentence in sentences for claim in sentence.iter_claims()],
    )


@dataclass(frozen=True, slots=True)
class _Sentence:
    """`start` is its place in the document's Markdown; `found` counts from there."""

    text: str
    start: int
    children: Sequence[ChildChunk]
    spans: tuple[EntitySpan, ...]

    def iter_mentions(self) -> Iterator[Mention]:
        for item in self.spans:
            if child := self._find_child(item):
                start, end = self.start + item.start, self.start + item.end
                yield Mention(chunk_id=child.id, name=self.text[item.start : item.end], key=item.key, type=item.type, char_start=start, char_end=end)

    def iter_relations(self) -> Iterator[Relation]:
        for relation in find_relations(self.text, self._list_spans_in_children()):
            if child := self._find_child(relation.subject):
                subject, object_key = (relation.subject.type, relation.subject.key), (relation.object.type, relation.object.key)
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
        """What lies within a child: what is no mention takes part in nothing."""
        return [item for item in self.spans if self._find_child(item)]

    def _find_child(self, item: EntitySpan) -> ChildChunk | None:
        start, end = self.start + item.start, self.start + item.end
        index = bisect_right(self.children, start, key=lambda child: child.char_start) - 1
        child = self.children[index] if index >= 0 else None
        return child if child and end <= child.char_end else None


def _iter_sentences(parent: ParentChunk) -> Iterator[_Sentence]:
    children = sorted(parent.children, key=lambda child: child.char_start)
    for start, end in split_sentences(parent.text):
        text = parent.text[start:end]
        if spans := _find_spans(text):
            yield _Sentence(text, parent.char_start + start, children, spans)


def split_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Sentences, lines and table cells: a name never goes on from one to the next."""
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION_END.search(text[max(start, match.start() - 6) : match.start()]) or "\n" in match[0]:
            yield start, match.start()
            start = match.end()
    yield start, len(text)


def _find_spans(text: str) -> tuple[EntitySpan, ...]:
    """In order; a value comes before a name that overlaps it."""
    value_spans = list(find_values(text))
    ends = [value.end for value in value_spans]
    name_spans = [
        item for item in find_names(text) if (next_value := bisect_right(ends, item.start)) == len(value_spans) or item.end <= value_spans[next_value].start
    ]
    return tuple(sorted((item for item in [*value_spans, *name_spans] if item.key), key=lambda item: item.start))


def _unify_types(sentences: Sequence[_Sentence]) -> list[_Sentence]:
    """With one kind for each key."""
    type_by_key = vote_types((item.key, item.type, sentence.text[item.start : item.end]) for sentence in sentences for item in sentence.spans)
    return [replace(sentence, spans=tuple(_retype(item, type_by_key[item.key]) for item in sentence.spans)) for sentence in sentences]


def _retype(item: EntitySpan, kind: str) -> EntitySpan:
    return replace(item, type=kind) if item.type in NAME_TYPES and kind in NAME_TYPES else item
