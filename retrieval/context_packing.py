"""Pack the contexts that fit the token budget, numbered from 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.parent_expansion import RankedParent
from schemas.ports.search import ChunkView, ParentView


@dataclass(frozen=True, slots=True)
class ContextPassage:
    """A parent passage to answer from. `children` may be quoted, in order of the text."""

    n: int
    parent: RankedParent
    view: ParentView
    children: tuple[ChunkView, ...]

    @property
    def readable_text(self) -> str:
        """Title, section, column names of split tables, and text: all that an answer may rest on."""
        title = self.parent.best.chunk.title or ""
        return "\n".join(
            dict.fromkeys(
                [title, self.view.section, *(child.prefix for child in self.children), self.text]
            )
        )

    @property
    def text(self) -> str:
        reads_whole_parent = (
            len(self.children) > 1
            or not self.children
            or self.children[0].char_end - self.children[0].char_start >= len(self.view.text)
        )
        return self.view.text if reads_whole_parent else self.children[0].text


def pack_contexts(
    parents: Sequence[RankedParent],
    views: Mapping[UUID, ParentView],
    children: Mapping[UUID, Sequence[ChunkView]],
    budget: int,
) -> list[ContextPassage]:
    """Take parents in order while the token budget lasts, skipping those that do not fit.

    The first parent is always included, reduced to its best child when it alone exceeds the budget.
    """
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
