"""Near-duplicates: passages that say the same are shown once, and no document's id is lost.

MinHash (Broder 1997) over three-word shingles, in bands for locality-sensitive hashing; passages of equal words fold without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rensa import RMinHash

from retrieval.expand import RankedParent
from retrieval.words import words

PERMUTATIONS = 128
SIMILARITY = 0.9
"""Estimated Jaccard similarity of shingles from which on two passages are near-equal."""
_SEED = 7
_SHINGLE = 3
_FEWEST_WORDS = 12
"""Shorter passages fold only when their words are equal: one other word changes too much."""


def fold(parents: Sequence[RankedParent], read: int) -> list[RankedParent]:
    """Each passage that is near-equal to a better one goes under it; order is kept. Only the first `read` are compared, the rest pass."""
    kept: list[RankedParent] = []
    folded: dict[int, list[RankedParent]] = {}
    signs: list[_Sign] = []
    for parent in parents[:read]:
        sign = _Sign(parent.best.chunk.text)
        twin = next((place for place, other in enumerate(signs) if sign.near(other)), None)
        if twin is None:
            kept.append(parent)
            signs.append(sign)
        else:
            folded.setdefault(twin, []).append(parent)
    with_twins = [replace(parent, duplicates=tuple(folded.get(place, ()))) for place, parent in enumerate(kept)]
    return [*with_twins, *parents[read:]]


class _Sign:
    """What a passage is compared by; the MinHash is made only when a passage of about the same length is met."""

    def __init__(self, text: str) -> None:
        self._words = words(text)
        self._hash: RMinHash | None = None

    def near(self, other: _Sign) -> bool:
        if self._words == other._words:
            return True
        shorter, longer = sorted((len(self._words), len(other._words)))
        if shorter < _FEWEST_WORDS or shorter < SIMILARITY * longer:
            return False
        return bool(self.minhash.jaccard(other.minhash) >= SIMILARITY)

    @property
    def minhash(self) -> RMinHash:
        if self._hash is None:
            self._hash = RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
            self._hash.update([" ".join(self._words[start : start + _SHINGLE]) for start in range(len(self._words) - _SHINGLE + 1)])
        return self._hash
