"""Chunks along a document's structure: sections, then blocks, then content-defined ends of sentences, rows and lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import takewhile
from uuid import UUID

from engines.chunk import tokens
from engines.chunk.atoms import Atom, atoms, is_blank
from engines.chunk.naming import Child, Parent, Path, named
from engines.chunk.packing import pack
from engines.chunk.sections import Section, sections
from engines.sentences import VERSION as SENTENCES
from schemas.generations import ChunkConfig
from schemas.ids import fingerprint
from schemas.values import Block, ParentChunk, Transcript

VERSION = 2
_ROOM = 1.35
"""Packs that nothing more fits into are three quarters full on average; with this much room children have about `child_tokens`."""
_OWN = frozenset({"code", "table", "summary", "formula"})


class StructureChunker:
    """Implements Chunker. A section of at most `whole_tokens`, and so a document, is one child; code is always by itself."""

    def __init__(self, config: ChunkConfig) -> None:
        self.fingerprint = fingerprint("structure", VERSION, tokens.VERSION, SENTENCES)
        self._parent, self._whole = config.parent_tokens, config.whole_tokens
        self._child = min(500, round(config.child_tokens * _ROOM))

    def chunk(self, document_id: UUID, title: str | None, transcript: Transcript) -> list[ParentChunk]:
        found = sections(transcript)
        parents = self._one(transcript, found) or [parent for section in found for parent in self._parents(transcript.markdown, section)]
        return named(document_id, title, transcript, parents)

    def _one(self, transcript: Transcript, found: Sequence[Section]) -> list[Parent]:
        """The whole document as one chunk, where it is as short as that and has several sections."""
        if len(found) < 2 or any(block.kind in ("code", "summary") for block in transcript.blocks):
            return []
        start, end = found[0].start, found[-1].end
        if tokens.estimate(transcript.markdown[start:end]) > self._whole:
            return []
        path: Path = reduce(_shared, (section.path for section in found))
        child = Child(found[0].blocks[0].span.char_start if found[0].path == path else start, end, path)
        return [Parent(start, end, path, [child])]

    def _parents(self, markdown: str, section: Section) -> Iterator[Parent]:
        cuts = [cut for run in self._runs(markdown, section) for cut in self._cuts(markdown, run)]
        children = [Child(cut[0].start, _trimmed(markdown, cut), section.path) for cut in cuts]
        strengths = [(int(cut[0].rank), cut[0].mark) for cut in cuts]
        for first, last in pack([sum(atom.tokens for atom in cut) for cut in cuts], strengths, self._parent):
            start = section.start if first == 0 else children[first].start
            yield Parent(start, children[last - 1].end, section.path, children[first:last])

    def _runs(self, markdown: str, section: Section) -> Iterator[list[Block]]:
        """Blocks that may share a child: all of a short section; else prose together, a table with its caption, other things alone."""
        blocks = section.blocks
        text = markdown[blocks[0].span.char_start : blocks[-1].span.char_end]
        if not any(block.kind in ("code", "summary") for block in blocks) and tokens.estimate(text) <= self._whole:
            yield list(blocks)
            return
        run: list[Block] = []
        for block in blocks:
            captioned = block.kind == "table" and [before.kind for before in run] == ["caption"]
            apart = block.kind in _OWN or block.kind == "caption" or (run and run[-1].kind in _OWN)
            if run and apart and not captioned:
                yield run
                run = []
            run.append(block)
        yield run

    def _cuts(self, markdown: str, run: Sequence[Block]) -> list[list[Atom]]:
        found = [atom for block in run for atom in atoms(markdown, block, self._child)]
        limit = self._whole if sum(atom.tokens for atom in found) <= self._whole else self._child
        ranges = pack([atom.tokens for atom in found], [(int(atom.rank), atom.mark) for atom in found], limit)
        return [cut for first, last in ranges if not is_blank(markdown, cut := found[first:last])]


def _trimmed(markdown: str, cut: Sequence[Atom]) -> int:
    """The end of a cut without the white space that separates it from the next."""
    start, end = cut[0].start, cut[-1].end
    return start + len(markdown[start:end].rstrip())


def _shared(one: Path, other: Path) -> Path:
    return tuple(name for name, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
