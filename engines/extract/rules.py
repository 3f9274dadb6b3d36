"""Names, relations and claims by rules, English and Portuguese, without a model."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engines.extract.agreement import kinds
from engines.extract.relations import NAMES, claims, relations
from engines.extract.spans import names
from engines.extract.values import Found, values
from schemas.ids import fingerprint
from schemas.values import ChildChunk, Claim, Extraction, Mention, ParentChunk, Relation

VERSION = 1
NAME = "rules"
_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"”»)]))\s++(?=[\"“«(]?[A-ZÀ-Ý0-9])|(?<!\s)\s*\n[\s>#*-]*+|(?:(?<!\s)\s++)?\|\s*+")
_ABBREVIATED = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Dra|Sr|Sra|Prof|Art|art|No|nº|n|Inc|Ltd|Co|Corp|vs|fls|pp?|[A-Z]))\.$")


class RuleExtractor:
    """The same name has the same kind throughout one call: the one that its fullest and most frequent spellings speak for. Works off the event loop."""

    fingerprint = fingerprint(NAME, VERSION)

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        return await asyncio.to_thread(extract, parents)


def extract(parents: Sequence[ParentChunk]) -> Extraction:
    sentences = _agreed([sentence for parent in parents for sentence in _sentences(parent)])
    return Extraction(
        mentions=[mention for sentence in sentences for mention in sentence.mentions()],
        relations=[relation for sentence in sentences for relation in sentence.relations()],
        claims=[claim for sentence in sentences for claim in sentence.claims()],
    )


@dataclass(frozen=True, slots=True)
class _Sentence:
    """`start` is its place in the document's Markdown; `found` counts from there."""

    text: str
    start: int
    children: Sequence[ChildChunk]
    found: tuple[Found, ...]

    def mentions(self) -> Iterator[Mention]:
        for item in self.found:
            if child := self._child(item):
                start, end = self.start + item.start, self.start + item.end
                yield Mention(chunk_id=child.id, name=self.text[item.start : item.end], key=item.key, type=item.type, char_start=start, char_end=end)

    def relations(self) -> Iterator[Relation]:
        for said in relations(self.text, self._inside()):
            if child := self._child(said.subject):
                subject, target = (said.subject.type, said.subject.key), (said.object.type, said.object.key)
                yield Relation(
                    chunk_id=child.id,
                    subject=subject,
                    type=said.type,
                    object=target,
                    weight=said.weight,
                    extractor=NAME,
                    char_start=self.start,
                    char_end=self.end,
                )

    def claims(self) -> Iterator[Claim]:
        for said in claims(self.text, self._inside()):
            if child := self._child(said.value):
                value = self.text[said.value.start : said.value.end]
                subject = (said.subject.type, said.subject.key)
                yield Claim(
                    chunk_id=child.id,
                    subject=subject,
                    property=said.property,
                    value=value,
                    char_start=self.start + said.value.start,
                    char_end=self.start + said.value.end,
                )

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def _inside(self) -> list[Found]:
        """What lies within a child: what is no mention takes part in nothing."""
        return [item for item in self.found if self._child(item)]

    def _child(self, item: Found) -> ChildChunk | None:
        start, end = self.start + item.start, self.start + item.end
        place = bisect_right(self.children, start, key=lambda child: child.char_start) - 1
        child = self.children[place] if place >= 0 else None
        return child if child and end <= child.char_end else None


def _sentences(parent: ParentChunk) -> Iterator[_Sentence]:
    children = sorted(parent.children, key=lambda child: child.char_start)
    for start, end in sentence_spans(parent.text):
        text = parent.text[start:end]
        if found := _found(text):
            yield _Sentence(text, parent.char_start + start, children, found)


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Sentences, lines and table cells: a name never goes on from one to the next."""
    start = 0
    for match in _END.finditer(text):
        if not _ABBREVIATED.search(text[max(start, match.start() - 6) : match.start()]) or "\n" in match[0]:
            yield start, match.start()
            start = match.end()
    yield start, len(text)


def _found(text: str) -> tuple[Found, ...]:
    """In order; a value comes before a name that overlaps it."""
    given = list(values(text))
    ends = [value.end for value in given]
    named = [item for item in names(text) if (after := bisect_right(ends, item.start)) == len(given) or item.end <= given[after].start]
    return tuple(sorted((item for item in [*given, *named] if item.key), key=lambda item: item.start))


def _agreed(sentences: Sequence[_Sentence]) -> list[_Sentence]:
    """With one kind for each key."""
    chosen = kinds((item.key, item.type, sentence.text[item.start : item.end]) for sentence in sentences for item in sentence.found)
    return [replace(sentence, found=tuple(_as(item, chosen[item.key]) for item in sentence.found)) for sentence in sentences]


def _as(item: Found, kind: str) -> Found:
    return replace(item, type=kind) if item.type in NAMES and kind in NAMES else item
