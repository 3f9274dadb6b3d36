"""Packing: the contexts that fit the token budget, numbered from 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.expand import RankedParent
from schemas.ports.search import ChunkView, ParentView


@dataclass(frozen=True, slots=True)
class Context:
    """A parent to answer from. `children` are what may be quoted, in order; `text` is what is read."""

    n: int
    parent: RankedParent
    view: ParentView
    children: tuple[ChunkView, ...]

    @property
    def readable(self) -> str:
        """All that an answerer reads of it: title, section, column names of cut tables, text."""
        title = self.parent.best.chunk.title or ""
        return "\n".join(dict.fromkeys([title, self.view.section, *(child.prefix for child in self.children), self.text]))

    @property
    def text(self) -> str:
        whole = len(self.children) > 1 or not self.children or self.children[0].char_end - self.children[0].char_start >= len(self.view.text)
        return self.view.text if whole else self.children[0].text


def pack(parents: Sequence[RankedParent], views: Mapping[UUID, ParentView], children: Mapping[UUID, Sequence[ChunkView]], budget: int) -> list[Context]:
    """In order while the tokens last; one that does not fit is passed over. The first always goes in, by its best child alone if it is too long."""
    contexts: list[Context] = []
    left = budget
    for parent in parents:
        view = views[parent.parent_id]
        family = tuple(children.get(parent.parent_id) or (parent.best.chunk,))
        if view.tokens > left and not contexts:
            contexts.append(Context(1, parent, view, (parent.best.chunk,)))
            break
        if view.tokens <= left:
            contexts.append(Context(len(contexts) + 1, parent, view, family))
            left -= view.tokens
    return contexts
