"""Judgements on the chunks of a generation: a place that was judged belongs to the parent chunk that holds most of it.

A quote is looked for where it was read; then, as a revision or a parser may have moved it, nearest to that; then without regard to case and white space;
then by the best partial alignment (at least 90 of 100 by Levenshtein's ratio), in texts that are not too long for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from rapidfuzz import fuzz

ALIKE = 90.0
ALIGNED = 200_000
"""Characters of a text that is aligned at most."""
SHORTEST = 20
"""Characters of a quote from which on a near one is taken for it."""


@dataclass(frozen=True, slots=True)
class JudgedPlace:
    """What somebody judged; neither place nor quote: the document as a whole."""

    document_id: UUID
    revision: int | None
    char_start: int | None
    char_end: int | None
    quote: str | None
    grade: int


@dataclass(frozen=True, slots=True)
class ParentPlace:
    id: UUID
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class DocumentPlaces:
    """A document as one generation shows it. `as_judged`: its texts are made as those in which places without a quote were read."""

    document_id: UUID
    revision: int
    text: str
    parents: Sequence[ParentPlace]
    as_judged: bool = True


Grades = dict[UUID, int]
"""Parent chunk, or document that was judged as a whole → grade."""


def unit_of(judged: JudgedPlace, document: DocumentPlaces | None) -> UUID | None:
    """The parent that was judged, or the document; None where the generation has nothing of the kind."""
    if document is None:
        return None
    if judged.quote is None and judged.char_start is None:
        return judged.document_id
    place = located(judged, document)
    return _holder(place, document.parents) if place else None


def graded(judgements: Sequence[JudgedPlace], documents: Mapping[UUID, DocumentPlaces]) -> tuple[Grades, int]:
    """Grades of what could be found, the highest of each; and how many judgements could."""
    grades: Grades = {}
    mapped = 0
    for judged in judgements:
        unit = unit_of(judged, documents.get(judged.document_id))
        if unit is not None:
            mapped += 1
            grades[unit] = max(judged.grade, grades.get(unit, 0))
    return grades, mapped


def located(judged: JudgedPlace, document: DocumentPlaces) -> tuple[int, int] | None:
    """Where in the document's text."""
    start, end = judged.char_start or 0, judged.char_end or 0
    if judged.quote is None:
        same = document.as_judged and judged.revision in (None, document.revision) and start < end <= len(document.text)
        return (start, end) if same else None
    if judged.char_start is not None and document.text[start : start + len(judged.quote)] == judged.quote:
        return start, start + len(judged.quote)
    return _exactly(judged.quote, document.text, start) or _loosely(judged.quote, document.text, start) or _nearly(judged.quote, document.text)


def _exactly(quote: str, text: str, near: int) -> tuple[int, int] | None:
    return _nearest(((match.start(), match.end()) for match in re.finditer(re.escape(quote), text)), near)


def _loosely(quote: str, text: str, near: int) -> tuple[int, int] | None:
    words = [re.escape(word) for word in quote.split()]
    return _nearest(((match.start(), match.end()) for match in re.finditer(r"\s+".join(words), text, re.IGNORECASE)), near) if words else None


def _nearly(quote: str, text: str) -> tuple[int, int] | None:
    if len(quote) < SHORTEST or len(text) > ALIGNED:
        return None
    found = fuzz.partial_ratio_alignment(quote, text, score_cutoff=ALIKE)
    return (found.dest_start, found.dest_end) if found and len(quote) <= len(text) else None


def _nearest(places: Iterator[tuple[int, int]], near: int) -> tuple[int, int] | None:
    return min(places, key=lambda place: abs(place[0] - near), default=None)


def _holder(place: tuple[int, int], parents: Sequence[ParentPlace]) -> UUID | None:
    def shared(parent: ParentPlace) -> int:
        return min(parent.char_end, place[1]) - max(parent.char_start, place[0])

    best = max(parents, key=shared, default=None)
    return best.id if best is not None and shared(best) > 0 else None
