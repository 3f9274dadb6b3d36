"""Chunks with their ids: the same text in the same section of the same document has the same id in every revision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from engines.chunk.places import Places
from engines.chunk.tokens import estimate
from engines.repetition import find_period
from schemas.ids import content_id
from schemas.values import BlockKind, ChildChunk, ParentChunk, Transcript

Path = tuple[str, ...]
_LONGEST_NAME = 200
_LONGEST_HEADER = 800
_REPEATED = 256


@dataclass(frozen=True, slots=True)
class Child:
    """A cut, before it has a name."""

    start: int
    end: int
    path: Path


@dataclass(frozen=True, slots=True)
class Parent:
    start: int
    end: int
    path: Path
    children: Sequence[Child]


def named(document_id: UUID, title: str | None, transcript: Transcript, parents: Sequence[Parent]) -> list[ParentChunk]:
    naming = _Naming(document_id, title, transcript, Places(transcript))
    kept = _without_repetition(transcript.markdown, parents)
    return [naming.parent(ordinal, parent) for ordinal, parent in enumerate(kept)]


def _without_repetition(markdown: str, parents: Sequence[Parent]) -> Iterator[Parent]:
    """Keep one of the chunks of a section that consist of the same few characters over and over."""
    seen: set[tuple[Path, str]] = set()
    for parent in parents:
        children = []
        for child in parent.children:
            text = markdown[child.start : child.end]
            repeated = _pattern(text)
            if repeated is None or (child.path, repeated) not in seen:
                children.append(child)
            if repeated is not None:
                seen.add((child.path, repeated))
        if children:
            yield replace(parent, children=children)


def _pattern(text: str) -> str | None:
    """What a long text repeats, wherever in it the text begins."""
    period = find_period(text) if len(text) >= _REPEATED else None
    return min(text[i : i + period] for i in range(period)) if period else None


class _Naming:
    def __init__(self, document_id: UUID, title: str | None, transcript: Transcript, places: Places) -> None:
        self._document_id, self._title, self._markdown, self._places = document_id, title, transcript.markdown, places
        self._seen: Counter[tuple[str, Path, str]] = Counter()
        self._children = 0

    def parent(self, ordinal: int, cut: Parent) -> ParentChunk:
        text = self._markdown[cut.start : cut.end]
        return ParentChunk(
            id=self._id("parent", cut.path, text),
            ordinal=ordinal,
            text=text,
            section=" > ".join(cut.path),
            char_start=cut.start,
            char_end=cut.end,
            pages=self._places.pages(cut.start, cut.end),
            tokens=estimate(text),
            children=[self._child(child) for child in cut.children],
        )

    def _child(self, cut: Child) -> ChildChunk:
        text = self._markdown[cut.start : cut.end]
        kind, language = self._kind(cut)
        self._children += 1
        return ChildChunk(
            id=self._id("chunk", cut.path, text),
            ordinal=self._children - 1,
            kind=kind,
            text=text,
            prefix=self._prefix(cut),
            char_start=cut.start,
            char_end=cut.end,
            spans=self._places.spans(cut.start, cut.end),
            tokens=estimate(text),
            language=language,
        )

    def _id(self, kind: str, path: Path, text: str) -> UUID:
        self._seen[kind, path, text] += 1
        return content_id(kind, self._document_id, path, text, self._seen[kind, path, text])

    def _kind(self, cut: Child) -> tuple[BlockKind, str | None]:
        """That of its blocks where they are of one kind (a table may have its caption), else a paragraph."""
        blocks = self._places.blocks(cut.start, cut.end)
        kinds = {block.kind for block in blocks}
        kinds = kinds - {"caption"} or kinds
        kind: BlockKind = kinds.pop() if len(kinds) == 1 else "paragraph"
        return kind, blocks[0].language if kind == "code" else None

    def _prefix(self, cut: Child) -> str:
        names = [name[:_LONGEST_NAME] for name in cut.path]
        if self._title and (not names or names[0].casefold() != self._title.strip().casefold()[:_LONGEST_NAME]):
            names.insert(0, self._title.strip()[:_LONGEST_NAME])
        return "\n".join(part for part in (" > ".join(names), self._header(cut)) if part)

    def _header(self, cut: Child) -> str:
        """The header rows of a table that `cut` begins after, without the delimiter row."""
        block = self._places.blocks(cut.start, cut.end)[0]
        if block.header_end is None or cut.start < block.header_end:
            return ""
        header = self._markdown[block.span.char_start : block.header_end].rsplit("\n", 1)[0][:_LONGEST_HEADER]
        return header if header.strip("| \n") else ""
