"""From the channels' hits to the passages of an answer.

Chunks are loaded while other channels still search, expanded to the parent passages that are read,
and near-duplicates are folded: by MinHash (Broder 1997) over three-word shingles, or without it if
their texts are equal. Of the ranked passages, weak ones are dropped, and the others fill the token
budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from engines.language import estimate_tokens
from retrieval.question.words import split_words
from retrieval.ranking.fusion import FusedCandidate
from schemas.ports.search import ChunkView, Hit, IndexSnapshot, ParentView
from schemas.profiles import Profile

# Documents to cite for one sentence that several hold.
SOURCES_PER_QUOTE = 5


class ChunkLoader:
    """Load the chunks of one channel's hits while other channels still search."""

    def __init__(self, snapshot: IndexSnapshot, question: str) -> None:
        self._snapshot, self._question = snapshot, question
        self._requested_ids: set[UUID] = set()
        self._tasks: list[asyncio.Task[Mapping[UUID, ChunkView]]] = []

    def load_hits(self, hits: Sequence[Hit]) -> None:
        """Start loading the chunks of `hits` that are not loading yet."""
        # Channels find the same chunks; each is loaded once.
        new_ids = {hit.chunk_id for hit in hits} - self._requested_ids
        if new_ids:
            self._requested_ids |= new_ids
            self._tasks.append(
                asyncio.ensure_future(self._snapshot.fetch_chunks(list(new_ids), self._question))
            )

    async def wait_for_chunks(self) -> dict[UUID, ChunkView]:
        """Wait for every started load and return the visible chunks. Raises DatabaseUnavailable."""
        return {
            chunk_id: view
            for loaded_chunks in await asyncio.gather(*self._tasks)
            for chunk_id, view in loaded_chunks.items()
        }

    async def close(self) -> None:
        # Running loads hold connections of the snapshot, which closes next.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_chunk_loader(snapshot: IndexSnapshot, question: str) -> AsyncIterator[ChunkLoader]:
    """Open a loader whose pending loads are cancelled on exit."""
    loader = ChunkLoader(snapshot, question)
    try:
        yield loader
    finally:
        await loader.close()


if TYPE_CHECKING:
    from rensa import RMinHash


@dataclass(frozen=True, slots=True)
class RankedParent:
    """A parent, scored by its best child. `duplicates` are near-equal parents folded under it, best
    first.
    """

    parent_id: UUID
    document_id: UUID
    score: float
    best: FusedCandidate
    children_count: int
    rerank_score: float | None = None
    score_parts: Mapping[str, float] = field(default_factory=dict)
    duplicates: tuple[RankedParent, ...] = ()

    @property
    def sort_key(self) -> tuple[float, UUID]:
        return (-self.score, self.parent_id)

    def duplicate_documents(self) -> list[UUID]:
        """List the other documents among the folded passages, best first."""
        return list(
            dict.fromkeys(
                other.document_id
                for other in self.duplicates
                if other.document_id != self.document_id
            )
        )


def expand_to_parents(
    candidates: Sequence[FusedCandidate], aggregation: Literal["max", "sum"]
) -> list[RankedParent]:
    """Return parents, best first.

    `max` takes the best child's score; `sum` adds what each child scores above the lowest
    candidate.
    """
    # z-scores may be negative: unshifted, another matching child would lower the sum.
    lowest_score = min((candidate.score for candidate in candidates), default=0.0)
    families: dict[UUID, list[FusedCandidate]] = {}
    for candidate in candidates:
        families.setdefault(candidate.chunk.parent_id, []).append(candidate)
    parents = []
    for children in families.values():
        # The id breaks ties, so that a rerun chooses the same child.
        best = max(children, key=lambda child: (child.score, child.chunk.chunk_id))
        score = (
            best.score
            if aggregation == "max"
            else sum(child.score - lowest_score for child in children)
        )
        parents.append(
            RankedParent(
                best.chunk.parent_id,
                best.chunk.document_id,
                score,
                best,
                len(children),
                score_parts={**best.score_parts, "fused": score},
            )
        )
    return sorted(parents, key=lambda parent: parent.sort_key)


def group_by_parent(children: Sequence[ChunkView]) -> dict[UUID, list[ChunkView]]:
    """Group chunks by their parents, in order of the text."""
    families: dict[UUID, list[ChunkView]] = {}
    for child in sorted(children, key=lambda child: child.ordinal):
        families.setdefault(child.parent_id, []).append(child)
    return families


def limit_per_document(parents: Sequence[RankedParent], limit: int | None) -> list[RankedParent]:
    if limit is None:
        return list(parents)
    count_by_document: dict[UUID, int] = {}
    limited = []
    for parent in parents:
        count_by_document[parent.document_id] = count_by_document.get(parent.document_id, 0) + 1
        if count_by_document[parent.document_id] <= limit:
            limited.append(parent)
    return limited


def replace_score(
    parent: RankedParent, score: float, rerank: float | None, parts: Mapping[str, float]
) -> RankedParent:
    return replace(
        parent, score=score, rerank_score=rerank, score_parts={**parent.score_parts, **parts}
    )


# The standard error of an estimate of 0.9 is then below 0.03.
PERMUTATIONS = 128
# Fixed, so that a rerun folds the same passages.
_SEED = 7
_SHINGLE_WORDS = 3
# Shorter passages fold only when their words are equal: one different word changes too much.
_MIN_WORDS = 12


def fold_parents(
    parents: Sequence[RankedParent], profile: Profile, n_distinct: int
) -> Sequence[RankedParent]:
    """Fold near-duplicates, if the profile says so, so that at least the first `n_distinct` parents
    differ.
    """
    if not profile.fusion.near_duplicates:
        return parents
    return fold_duplicates(
        parents,
        max(profile.rerank.parents, n_distinct),
        n_distinct,
        profile.fusion.duplicate_similarity,
    )


def fold_duplicates(
    parents: Sequence[RankedParent], scan_limit: int, n_distinct: int, min_similarity: float
) -> list[RankedParent]:
    """Fold each passage under a better one that it nearly equals; keep the order.

    Equal texts are folded among the first `scan_limit` parents. Near-equal ones are searched until
    `n_distinct` different passages are found: `min_similarity` is compared with the estimated
    Jaccard similarity of their shingles. Later parents are returned as they are.
    """
    distinct: list[RankedParent] = []
    folded: dict[int, list[RankedParent]] = {}
    by_text: dict[str, int] = {}
    signatures: list[_Signature] = []
    for parent in parents[:scan_limit]:
        signature = _Signature(parent.best.chunk.text)
        twin_index = by_text.get(signature.key)
        if twin_index is None and len(distinct) < n_distinct:
            twin_index = next(
                (
                    index
                    for index, other in enumerate(signatures)
                    if signature.is_near_duplicate(other, min_similarity)
                ),
                None,
            )
        if twin_index is None:
            by_text[signature.key] = len(distinct)
            distinct.append(parent)
            signatures.append(signature)
        else:
            folded.setdefault(twin_index, []).append(parent)
    with_twins = [
        replace(parent, duplicates=tuple(folded[index])) if index in folded else parent
        for index, parent in enumerate(distinct)
    ]
    return [*with_twins, *parents[scan_limit:]]


class _Signature:
    """Comparison key of a passage. The MinHash is computed only for passages of similar length."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.key = " ".join(text.lower().split())

    @cached_property
    def words(self) -> list[str]:
        return split_words(self._text)

    @cached_property
    def numbers(self) -> list[str]:
        return [word for word in self.words if any(map(str.isdigit, word))]

    def is_near_duplicate(self, other: _Signature, min_similarity: float) -> bool:
        shorter, longer = sorted((len(self.words), len(other.words)))
        # Texts whose lengths differ more cannot be that similar: skip the hashing.
        if shorter < _MIN_WORDS or shorter < min_similarity * longer:
            return self.words == other.words
        # Revisions of a text may differ in one number, which is then what matters.
        return self.numbers == other.numbers and bool(
            self.minhash.jaccard(other.minhash) >= min_similarity
        )

    @cached_property
    def minhash(self) -> RMinHash:
        # Here, because loading the library takes 30 ms of every start.
        from rensa import RMinHash

        signature = RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
        signature.update(
            [
                " ".join(self.words[start : start + _SHINGLE_WORDS])
                for start in range(len(self.words) - _SHINGLE_WORDS + 1)
            ]
        )
        return signature


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


def attach_duplicates(context: ContextPassage, views: Mapping[UUID, ParentView]) -> ContextPassage:
    """Add the first folded passage of each other document."""
    passages = {
        duplicate.document_id: ContextPassage(
            context.n, duplicate, views[duplicate.parent_id], (duplicate.best.chunk,)
        )
        for duplicate in reversed(list_duplicates(context.parent))
        if duplicate.parent_id in views
    }
    return replace(context, duplicates=tuple(passages.values()))


def list_duplicates(parent: RankedParent) -> list[RankedParent]:
    """List the best folded passages of other documents, which are sources beside the parent."""
    others = [item for item in parent.duplicates if item.document_id != parent.document_id]
    return others[: SOURCES_PER_QUOTE - 1]


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
