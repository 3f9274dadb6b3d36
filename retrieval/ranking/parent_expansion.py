"""Expand matched child chunks to the parent passages that are read, and fold near-duplicates.

MinHash (Broder 1997) over three-word shingles; passages of equal text fold without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from retrieval.question.words import split_words
from retrieval.ranking.fusion import FusedCandidate
from schemas.ports.search import ChunkView
from schemas.profiles import Profile

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
