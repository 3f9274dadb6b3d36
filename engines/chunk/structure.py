"""Chunks along a document's structure.

Sections are split into blocks, then at content-defined ends of sentences, rows and lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from uuid import UUID

from engines.chunk.atoms import Atom, find_trimmed_end, is_blank, split_atoms
from engines.chunk.chunk_builder import (
    ChildCut,
    DocumentSection,
    HeadingPath,
    ParentCut,
    build_chunks,
    split_sections,
)
from engines.language import SENTENCES_VERSION, TOKENS_VERSION, estimate_tokens
from schemas.generations import ChunkConfig
from schemas.ids import fingerprint
from schemas.values import Block, ParentChunk, Transcript

VERSION = 3
_PACKING_SLACK = 1.35
"""Packs are three quarters full on average; with this factor, children have about
`child_tokens`."""
_STANDALONE_KINDS = frozenset({"code", "table", "summary", "formula"})


class StructureChunker:
    """Chunker along sections.

    A section or document of at most `whole_tokens` is one child; code is always separate.
    """

    def __init__(self, config: ChunkConfig) -> None:
        self.fingerprint = fingerprint("structure", VERSION, TOKENS_VERSION, SENTENCES_VERSION)
        self._parent_tokens, self._whole_tokens = config.parent_tokens, config.whole_tokens
        # The local embedder reads 512 tokens, prefix and special tokens included.
        self._child_tokens = min(500, round(config.child_tokens * _PACKING_SLACK))

    def chunk(
        self, document_id: UUID, title: str | None, transcript: Transcript
    ) -> list[ParentChunk]:
        sections = split_sections(transcript)
        parents = self._chunk_whole_document(transcript, sections) or [
            parent
            for section in sections
            for parent in self._build_parents(transcript.markdown, section)
        ]
        return build_chunks(document_id, title, transcript, parents)

    def _chunk_whole_document(
        self, transcript: Transcript, sections: Sequence[DocumentSection]
    ) -> list[ParentCut]:
        """Return a short document with several sections as a single chunk, else nothing."""
        if len(sections) < 2 or any(
            block.kind in ("code", "summary") for block in transcript.blocks
        ):
            return []
        start, end = sections[0].start, sections[-1].end
        if estimate_tokens(transcript.markdown[start:end]) > self._whole_tokens:
            return []
        names_by_level = zip(*(section.path for section in sections), strict=False)
        # The names that all paths begin with.
        path: HeadingPath = tuple(
            names[0] for names in takewhile(lambda names: len(set(names)) == 1, names_by_level)
        )
        child = ChildCut(
            sections[0].blocks[0].span.char_start if sections[0].path == path else start, end, path
        )
        return [ParentCut(start, end, path, [child])]

    def _build_parents(self, markdown: str, section: DocumentSection) -> Iterator[ParentCut]:
        cuts = [
            cut
            for run in self._split_runs(markdown, section)
            for cut in self._pack_atoms(markdown, run)
        ]
        children = [
            ChildCut(cut[0].start, find_trimmed_end(markdown, cut), section.path) for cut in cuts
        ]
        # A child has the boundary of its first atom, so parents are cut at stable places too.
        strengths = [(int(cut[0].rank), cut[0].boundary_hash) for cut in cuts]
        for first, last in pack(
            [sum(atom.tokens for atom in cut) for cut in cuts], strengths, self._parent_tokens
        ):
            # The first parent includes the section's headings.
            start = section.start if first == 0 else children[first].start
            yield ParentCut(start, children[last - 1].end, section.path, children[first:last])

    def _split_runs(self, markdown: str, section: DocumentSection) -> Iterator[list[Block]]:
        """Yield the blocks that may share a child.

        All blocks of a short section may; otherwise prose blocks, and a table with its caption.
        Other blocks are alone.
        """
        blocks = section.blocks
        text = markdown[blocks[0].span.char_start : blocks[-1].span.char_end]
        if (
            not any(block.kind in ("code", "summary") for block in blocks)
            and estimate_tokens(text) <= self._whole_tokens
        ):
            yield list(blocks)
            return
        run: list[Block] = []
        for block in blocks:
            follows_caption = block.kind == "table" and [
                previous_block.kind for previous_block in run
            ] == ["caption"]
            is_standalone = (
                block.kind in _STANDALONE_KINDS
                or block.kind == "caption"
                or (run and run[-1].kind in _STANDALONE_KINDS)
            )
            if run and is_standalone and not follows_caption:
                yield run
                run = []
            run.append(block)
        yield run

    def _pack_atoms(self, markdown: str, run: Sequence[Block]) -> list[list[Atom]]:
        block_atoms = [
            atom for block in run for atom in split_atoms(markdown, block, self._child_tokens)
        ]
        # A run that is short as a whole stays one child.
        limit = (
            self._whole_tokens
            if sum(atom.tokens for atom in block_atoms) <= self._whole_tokens
            else self._child_tokens
        )
        ranges = pack(
            [atom.tokens for atom in block_atoms],
            [(int(atom.rank), atom.boundary_hash) for atom in block_atoms],
            limit,
        )
        return [
            cut for first, last in ranges if not is_blank(markdown, cut := block_atoms[first:last])
        ]


def pack(
    sizes: Sequence[int], strengths: Sequence[tuple[int, int]], limit: int
) -> list[tuple[int, int]]:
    """Pack neighboring items until no two packs fit together; return their ranges `[start, end)`.

    Boundaries are removed from the weakest to the strongest, those of one rank in the order of a
    hash of the words next to them, each if both sides fit into one pack. A boundary therefore
    depends on the text near it and not on its distance from the document's start: an inserted
    paragraph moves only the cuts around it, which is the aim of content-defined chunking
    (Muthitacharoen et al., LBFS, 2001).

    `strengths[i]` belongs to the boundary before item i; the first is not used. A range exceeds
    `limit` only if it is a single item.
    """
    if not sizes:
        return []
    # For each pack: its first item by its last one, its last item and total size by its first one.
    first = list(range(len(sizes)))
    last = list(range(len(sizes)))
    total = list(sizes)
    is_boundary = [True] * len(sizes)
    for i in sorted(range(1, len(sizes)), key=lambda i: (*strengths[i], i)):
        left, right = first[i - 1], last[i]
        if total[left] + total[i] <= limit:
            total[left] += total[i]
            is_boundary[i] = False
            first[right], last[left] = left, right
    starts = [i for i in range(len(sizes)) if i == 0 or is_boundary[i]]
    return list(zip(starts, [*starts[1:], len(sizes)], strict=True))
