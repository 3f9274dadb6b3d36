"""Chunks of one size, whatever the text: windows of words with overlap. Table rows stay whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from uuid import UUID

from engines.chunk import tokens
from engines.chunk.atoms import Atom, atoms, is_blank
from engines.chunk.naming import Child, Parent, Path, named
from engines.chunk.sections import sections
from schemas.generations import ChunkConfig
from schemas.ids import fingerprint
from schemas.values import ParentChunk, Transcript

VERSION = 2


class FixedSizeChunker:
    """Implements Chunker. Unlike `structure`, its cuts count from the document's start: one inserted word may move all that follow."""

    def __init__(self, config: ChunkConfig) -> None:
        self.fingerprint = fingerprint("fixed_size", VERSION, tokens.VERSION)
        self._config = config

    def chunk(self, document_id: UUID, title: str | None, transcript: Transcript) -> list[ParentChunk]:
        words = [atom for block in transcript.blocks for atom in atoms(transcript.markdown, block, 0)]
        paths = _Paths(transcript)
        cuts = [words[a:b] for a, b in self._windows(words)]
        children = [_child(transcript.markdown, cut, paths) for cut in cuts if not is_blank(transcript.markdown, cut)]
        return named(document_id, title, transcript, list(self._parents(transcript.markdown, children)))

    def _windows(self, words: Sequence[Atom]) -> list[tuple[int, int]]:
        windows, start = [], 0
        while start < len(words):
            end = _reach(words, start, self._config.child_tokens)
            windows.append((start, end))
            if end == len(words):
                break
            start = max(start + 1, _back(words, end, self._config.child_tokens * self._config.overlap))
        return windows

    def _parents(self, markdown: str, children: Sequence[Child]) -> list[Parent]:
        parents: list[Parent] = []
        group: list[Child] = []
        for child in children:
            if group and tokens.estimate(markdown[group[0].start : child.end]) > self._config.parent_tokens:
                parents.append(_parent(group))
                group = []
            group.append(child)
        return [*parents, _parent(group)] if group else parents


def _reach(words: Sequence[Atom], start: int, size: float) -> int:
    """Where a window of about `size` tokens ends; it holds at least one word."""
    end, total = start + 1, words[start].tokens
    while end < len(words) and total + words[end].tokens <= size:
        total += words[end].tokens
        end += 1
    return end


def _back(words: Sequence[Atom], end: int, size: float) -> int:
    start, total = end, 0
    while start > 0 and total + words[start - 1].tokens <= size:
        start -= 1
        total += words[start].tokens
    return start


def _child(markdown: str, words: Sequence[Atom], paths: _Paths) -> Child:
    start, end = words[0].start, words[-1].end
    return Child(start, start + len(markdown[start:end].rstrip()), paths.at(start))


def _parent(group: Sequence[Child]) -> Parent:
    return Parent(group[0].start, group[-1].end, group[0].path, group)


class _Paths:
    """The heading path that holds at an offset."""

    def __init__(self, transcript: Transcript) -> None:
        found = sections(transcript)
        self._starts = [section.start for section in found]
        self._paths: list[Path] = [section.path for section in found]

    def at(self, offset: int) -> Path:
        return self._paths[bisect_right(self._starts, offset) - 1]
