"""Mask personal identifiers in all that leaves the pipeline: responses, prompts, deltas and run
events.

A mask has the length of the text that it hides, so positions still fit the stored text. Quotes are
verified before they are masked. The index is searched with the question as it was asked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel

from engines.personal_identifiers import Identifier, find_identifiers
from schemas.profiles import RedactionProfile
from schemas.questions import QueryResponse, SearchResponse

MASK = "█"
NO_REDACTION = RedactionProfile()
ModelT = TypeVar("ModelT", bound=BaseModel)
ResponseT = TypeVar("ResponseT", SearchResponse, QueryResponse)

# Addresses and identities, which a mask would break.
_UNMASKED_FIELDS = frozenset({"link", "tenant", "requested_by"})
_TERM = re.compile(r"\w+(?:[-./,:]\w+)*")
# A shorter piece of a question's identifier says nothing, and stands in other texts by chance.
_MIN_TERM_LETTERS = 3


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of a document that begins at its character `start`."""

    document_id: UUID
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Redactor:
    """Masks the identifiers of one query.

    An identifier that was found once is masked wherever it stands, also where its context is cut
    off and its form alone would not tell. The pieces of an identifier in the question are masked
    too, because the question is split into keywords. So are the pieces that two adjacent passages
    or quotes of a document divide.
    """

    def __init__(self, profile: RedactionProfile = NO_REDACTION, question: str = "") -> None:
        self.profile = profile
        self._identifiers: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        # The pieces of divided identifiers that end one text and begin the next.
        self._last_pieces: set[str] = set()
        self._first_pieces: set[str] = set()
        self._question_terms: set[str] = set()
        for found in self._find(question):
            identifier = question[found.start : found.end]
            pieces = {*_TERM.findall(identifier), *re.findall(r"\w+", identifier)}
            self._question_terms |= {piece.lower() for piece in pieces}
            self._identifiers |= {
                piece
                for piece in pieces
                if len(piece) >= _MIN_TERM_LETTERS and any(map(str.isdigit, piece))
            }

    @property
    def is_active(self) -> bool:
        return bool(self.profile.kinds)

    def learn(self, texts: Iterable[str]) -> None:
        """Remember the identifiers of whole texts before pieces of them are masked."""
        for text in texts:
            self._find(text)

    def learn_divided(self, passages: Iterable[Passage], parts: Iterable[Passage]) -> None:
        """Remember the pieces of the identifiers of `passages` that a part of them cuts off.

        Passages of a document that touch or overlap are read as one text.
        """
        if not self.is_active:
            return
        parts_by_document = defaultdict[UUID, list[Passage]](list)
        for part in parts:
            parts_by_document[part.document_id].append(part)
        for passage in _join_passages(passages):
            for item in self._find(passage.text):
                for part in parts_by_document[passage.document_id]:
                    cut = slice(
                        max(part.start - passage.start, item.start),
                        min(part.end - passage.start, item.end),
                    )
                    if item.start < cut.start < item.end:
                        self._add_piece(self._first_pieces, passage.text[cut.start : item.end])
                        # Where its end is cut off too, this is all of the part.
                        self._add_piece(self._first_pieces, passage.text[cut])
                    if item.start < cut.stop < item.end:
                        self._add_piece(self._last_pieces, passage.text[item.start : cut.stop])

    def mask(self, text: str) -> str:
        """Return the text with every identifier masked; its length stays the same."""
        for start, end in self.find_ranges(text):
            text = text[:start] + MASK * (end - start) + text[end:]
        return text

    def find_ranges(self, text: str) -> list[tuple[int, int]]:
        """Return the ranges to mask, in order."""
        if not self.is_active:
            return []
        # Those that are found here too: the pattern fits no identifier that touches a word.
        ranges = [(item.start, item.end) for item in self._find(text)]
        ranges += [match.span() for match in self._compile().finditer(text)]
        merged: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if merged and start < merged[-1][1]:
                start, end = merged[-1][0], max(end, merged.pop()[1])
            merged.append((start, end))
        return merged

    def redact_response(self, response: ResponseT) -> ResponseT:
        """Return the response with masked texts, and the number of masked places in `redacted`."""
        if not self.is_active:
            return response
        redacted = self.redact(response)
        # Some texts were masked before; a rerun has masked texts to begin with.
        n_masked = len(re.findall(f"{MASK}+", redacted.model_dump_json()))
        return redacted.model_copy(update={"redacted": n_masked})

    def redact(self, model: ModelT) -> ModelT:
        """Return the model with every string masked, at any depth."""
        if not self.is_active:
            return model
        return type(model).model_validate(self.redact_value(model.model_dump()))

    def redact_value(self, value: Any) -> Any:
        match value:
            case str():
                # A keyword or lexeme of the question may be a piece of an identifier.
                is_piece = value.lower().strip("-+") in self._question_terms
                return MASK * len(value) if is_piece else self.mask(value)
            case Mapping():
                redacted = {
                    self.redact_value(name): item
                    if name in _UNMASKED_FIELDS
                    else self.redact_value(item)
                    for name, item in value.items()
                }
                if "quote" in redacted and "redacted" in redacted:
                    redacted["redacted"] = self.find_ranges(value["quote"]) or value["redacted"]
                if self._stores_identifier(value.get("raw_value")):
                    redacted["raw_value"] = MASK * len(value["raw_value"])
                return redacted
            case list() | tuple():
                return [self.redact_value(item) for item in value]
        return value

    def _stores_identifier(self, raw_value: object) -> bool:
        """Tell whether a cell stores the digits of an identifier, which its format spaces out."""
        return isinstance(raw_value, str) and any(
            digits == raw_value
            for identifier in self._identifiers
            if len(digits := re.sub(r"\D", "", identifier).lstrip("0")) >= _MIN_TERM_LETTERS
        )

    def _compile(self) -> re.Pattern[str]:
        if self._pattern is None:
            whole, first, last = map(
                _match_any, (self._identifiers, self._first_pieces, self._last_pieces)
            )
            self._pattern = re.compile(
                rf"(?<!\w){whole}(?!\w)|\A\s*+{first}(?!\w)|(?<!\w){last}(?=\s*+\Z)"
            )
        return self._pattern

    def _add_piece(self, pieces: set[str], piece: str) -> None:
        if sum(map(str.isalnum, piece)) >= _MIN_TERM_LETTERS and piece.strip() not in pieces:
            pieces.add(piece.strip())
            self._pattern = None

    def _find(self, text: str) -> list[Identifier]:
        """Find the identifiers of a text, and remember them."""
        found = find_identifiers(text, self.profile.kinds, self.profile.phone_regions)
        identifiers = {text[item.start : item.end] for item in found}
        if not self._identifiers.issuperset(identifiers):
            self._identifiers |= identifiers
            self._pattern = None
        return found


def _match_any(texts: Collection[str]) -> str:
    """Return a pattern for any of the texts; for none, one that matches nothing."""
    # Longest first: one identifier may be a piece of another. Line breaks of the stored text are
    # spaces in an answer.
    alternatives = (
        r"\s+".join(map(re.escape, text.split())) for text in sorted(texts, key=len, reverse=True)
    )
    return f"(?:{'|'.join(alternatives) or '(?!)'})"


def _join_passages(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Join the passages of a document that touch or overlap, or have one space between them."""
    joined: Passage | None = None
    for passage in sorted(passages, key=lambda item: (item.document_id, item.start)):
        if joined is None or (
            joined.document_id != passage.document_id or passage.start > joined.end + 1
        ):
            if joined is not None:
                yield joined
            joined = passage
        elif passage.end > joined.end:
            text = joined.text.ljust(passage.start - joined.start)
            joined = replace(joined, text=text[: passage.start - joined.start] + passage.text)
    if joined is not None:
        yield joined


def holds_quote(text: str, quote: str, redacted: Sequence[tuple[int, int]]) -> bool:
    """Tell whether the text holds the quote, of which the `redacted` ranges are not known."""
    pattern, position = "", 0
    for start, end in redacted:
        pattern += f"{re.escape(quote[position:start])}.{{{end - start}}}"
        position = end
    return re.search(pattern + re.escape(quote[position:]), text, re.DOTALL) is not None
