"""Packing: the contexts that fit the token budget, numbered from 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.parent_expansion import RankedParent
from schemas.ports.search import ChunkView, ParentView


@dataclass(frozen=True, slots=True)
class ContextPassage:
    """A parent to answer from. `children` are what may be quoted, in order; `text` is what is read."""

    n: int
    parent: RankedParent
    view: ParentView
    children: tuple[ChunkView, ...]

    @property
    def readable_text(self) -> str:
        """All that an answerer reads of it: title, section, column names of cut tables, text."""
        title = self.parent.best.chunk.title or ""
        return "\n".join(dict.fromkeys([title, self.view.section, *(child.prefix for child in self.children), self.text]))

    @property
    def text(self) -> str:
        reads_whole_parent = len(self.children) > 1 or not self.children or self.children[0].char_end - self.children[0].char_start >= len(self.view.text)
        return self.view.text if reads_whole_parent else self.children[0].text


def pack_contexts(
    parents: Sequence[RankedParent], views: Mapping[UUID, ParentView], children: Mapping[UUID, Sequence[ChunkView]], budget: int
) -> list[ContextPassage]:
    """In order while the tokens last; one that does not fit is passed over. The first always goes in, by its best child alone if it is too long."""
    contexts: list[ContextPassage] = []
    remaining_tokens = budget
    for parent in parents:
        view = views[parent.parent_id]
        child_chunks = tuple(children.get(parent.parent_id) or (parent.best.chunk,))
        if view.tokens > remaining_tokens and not contexts:
            contexts.append(ContextPassage(1, parent, view, (parent.best.chunk,)))
            break
        if view.tokens <= remaining_tokens:
            contexts.append(ContextPassage(len(contexts) + 1, parent, view, child_chunks))
            remaining_tokens -= view.tokens
    return contexts
