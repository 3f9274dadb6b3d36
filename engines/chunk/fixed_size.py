"""Chunks of a fixed size: overlapping windows of words, with table rows kept whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from uuid import UUID

from engines.chunk.atoms import Atom, find_trimmed_end, is_blank, split_atoms
from engines.chunk.chunk_builder import (
    ChildCut,
    HeadingPath,
    ParentCut,
    build_chunks,
    split_sections,
)
from engines.language import TOKENS_VERSION, estimate_tokens
from schemas.generations import ChunkConfig
from schemas.ids import fingerprint
from schemas.values import ParentChunk, Transcript

VERSION = 3


class FixedSizeChunker:
    """Chunker that counts from the document's start.

    Unlike with `structure`, an inserted word may move all later cuts.
    """

    def __init__(self, config: ChunkConfig) -> None:
        self.fingerprint = fingerprint("fixed_size", VERSION, TOKENS_VERSION)
        self._config = config

    def chunk(
        self, document_id: UUID, title: str | None, transcript: Transcript
    ) -> list[ParentChunk]:
        # A limit of 0 splits everything into words, except for table rows.
        words = [
            atom
            for block in transcript.blocks
            for atom in split_atoms(transcript.markdown, block, 0)
        ]
        paths = _HeadingPaths(transcript)
        cuts = [words[start:end] for start, end in self._split_windows(words)]
        children = [
            ChildCut(
                cut[0].start,
                find_trimmed_end(transcript.markdown, cut),
                paths.find_path(cut[0].start),
            )
            for cut in cuts
            if not is_blank(transcript.markdown, cut)
        ]
        return build_chunks(
            document_id, title, transcript, list(self._group_parents(transcript.markdown, children))
        )

    def _split_windows(self, words: Sequence[Atom]) -> list[tuple[int, int]]:
        windows, start = [], 0
        max_overlap = self._config.child_tokens * self._config.overlap
        while start < len(words):
            # A window has about `child_tokens` and at least one word.
            end, tokens = start + 1, words[start].tokens
            while end < len(words) and tokens + words[end].tokens <= self._config.child_tokens:
                tokens += words[end].tokens
                end += 1
            windows.append((start, end))
            if end == len(words):
                break
            overlap_start, tokens = end, 0
            while overlap_start > 0 and tokens + words[overlap_start - 1].tokens <= max_overlap:
                overlap_start -= 1
                tokens += words[overlap_start].tokens
            # At least one word further, or a large overlap would never end.
            start = max(start + 1, overlap_start)
        return windows

    def _group_parents(self, markdown: str, children: Sequence[ChildCut]) -> list[ParentCut]:
        parents: list[ParentCut] = []
        group: list[ChildCut] = []
        for child in children:
            if (
                group
                and estimate_tokens(markdown[group[0].start : child.end])
                > self._config.parent_tokens
            ):
                parents.append(_make_parent_cut(group))
                group = []
            group.append(child)
        return [*parents, _make_parent_cut(group)] if group else parents


def _make_parent_cut(group: Sequence[ChildCut]) -> ParentCut:
    return ParentCut(group[0].start, group[-1].end, group[0].path, group)


class _HeadingPaths:
    """Looks up the heading path at an offset."""

    def __init__(self, transcript: Transcript) -> None:
        sections = split_sections(transcript)
        self._starts = [section.start for section in sections]
        self._paths: list[HeadingPath] = [section.path for section in sections]

    def find_path(self, offset: int) -> HeadingPath:
        return self._paths[bisect_right(self._starts, offset) - 1]
