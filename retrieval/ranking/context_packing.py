"""Choose the contexts of an answer: drop weak parents, then pack what fits the token budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from engines.chunk.atoms import estimate_tokens
from retrieval.ranking.parent_expansion import RankedParent
from schemas.ports.search import ChunkView, ParentView


@dataclass(frozen=True, slots=True)
class ContextPassage:
    """A parent passage to answer from. `children` may be quoted, in order of the text.

    `duplicates` are nearly equal passages of other documents, to be cited beside it.
    """

    n: int
    parent: RankedParent
    view: ParentView
    children: tuple[ChunkView, ...]
    duplicates: tuple[ContextPassage, ...] = ()

    @property
    def readable_text(self) -> str:
        """Title, section, column names of split tables, and text: all that supports an answer."""
        title = self.parent.best.chunk.title or ""
        return "\n".join(
            # Without repeats: the children of a split table share their prefix.
            dict.fromkeys(
                [title, self.view.section, *(child.prefix for child in self.children), self.text]
            )
        )

    @property
    def text(self) -> str:
        # A parent reduced to its best child must not show text beyond the token budget.
        return self.view.text if self._reads_whole_parent else self.children[0].text

    @property
    def tokens(self) -> int:
        return self.view.tokens if self._reads_whole_parent else estimate_tokens(self.text)

    @property
    def _reads_whole_parent(self) -> bool:
        return (
            len(self.children) > 1
            or not self.children
            or self.children[0].char_end - self.children[0].char_start >= len(self.view.text)
        )


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


def attach_duplicates(
    context: ContextPassage, views: Mapping[UUID, ParentView], max_sources: int
) -> ContextPassage:
    """Add the first folded passage of each other document."""
    passages = {
        duplicate.document_id: ContextPassage(
            context.n, duplicate, views[duplicate.parent_id], (duplicate.best.chunk,)
        )
        for duplicate in reversed(list_duplicates(context.parent, max_sources))
        if duplicate.parent_id in views
    }
    return replace(context, duplicates=tuple(passages.values()))


def list_duplicates(parent: RankedParent, max_sources: int) -> list[RankedParent]:
    """List the best folded passages of other documents, which are sources beside the parent."""
    others = [item for item in parent.duplicates if item.document_id != parent.document_id]
    return others[: max_sources - 1]


def trim_parents(
    parents: Sequence[RankedParent], share: float, background: float
) -> list[RankedParent]:
    """Keep the parents that score at least `share` of the best one above the background, in the
    given order.

    The best parent always stays. A parent without a rerank score counts as the lowest reranked one,
    since fused scores are on another scale.
    """
    reranked = [
        parent.rerank_score - background for parent in parents if parent.rerank_score is not None
    ]
    lowest_reranked = min(reranked, default=0.0)
    strengths = [
        lowest_reranked
        if reranked and parent.rerank_score is None
        else get_strength(parent, background)
        for parent in parents
    ]
    highest = max(strengths, default=0.0)
    # A share of a negative score lies above it, and would drop even the best parent.
    if highest <= 0:
        return list(parents[:1])
    return [
        parent for parent, value in zip(parents, strengths, strict=True) if value >= share * highest
    ]


def get_strength(parent: RankedParent, background: float) -> float:
    """Return the rerank score above the background, or the fused score without one.

    Its zero is the average candidate (z-scores) or no rank at all (RRF).
    """
    return parent.score if parent.rerank_score is None else parent.rerank_score - background
