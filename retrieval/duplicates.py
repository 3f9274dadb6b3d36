"""Fold near-duplicate passages under the best of them, so that each is shown once and no document
id is lost.

MinHash (Broder 1997) over three-word shingles; passages of equal text fold without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from rensa import RMinHash

from retrieval.parent_expansion import RankedParent
from retrieval.words import split_words
from schemas.profiles import Profile

PERMUTATIONS = 128
# Estimated Jaccard similarity of the shingles from which on two passages are near-duplicates.
MIN_SIMILARITY = 0.9
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
    return fold_duplicates(parents, max(profile.rerank.parents, n_distinct), n_distinct)


def fold_duplicates(
    parents: Sequence[RankedParent], scan_limit: int, n_distinct: int
) -> list[RankedParent]:
    """Fold each passage under a better one that it nearly equals; keep the order.

    Equal texts are folded among the first `scan_limit` parents. Near-equal ones are searched until
    `n_distinct` different passages are found. Later parents are returned as they are.
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
                    if signature.is_near_duplicate(other)
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

    def is_near_duplicate(self, other: _Signature) -> bool:
        shorter, longer = sorted((len(self.words), len(other.words)))
        if shorter < _MIN_WORDS or shorter < MIN_SIMILARITY * longer:
            return self.words == other.words
        return bool(self.minhash.jaccard(other.minhash) >= MIN_SIMILARITY)

    @cached_property
    def minhash(self) -> RMinHash:
        signature = RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
        signature.update(
            [
                " ".join(self.words[start : start + _SHINGLE_WORDS])
                for start in range(len(self.words) - _SHINGLE_WORDS + 1)
            ]
        )
        return signature
