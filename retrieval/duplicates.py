"""Near-duplicates: passages that say the same are shown once, and no document's id is lost.

MinHash (Broder 1997) over three-word shingles; passages of equal text fold without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

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


def fold(parents: Sequence[RankedParent], read: int, wanted: int) -> list[RankedParent]:
    """Each passage that is near-equal to a better one goes under it; order is kept. Equal texts are found among the first `read`; near-equal ones are
    looked for until `wanted` different passages are there. The rest pass as they are."""
    kept: list[RankedParent] = []
    folded: dict[int, list[RankedParent]] = {}
    by_text: dict[str, int] = {}
    signs: list[_Sign] = []
    for parent in parents[:read]:
        sign = _Sign(parent.best.chunk.text)
        twin = by_text.get(sign.key)
        if twin is None and len(kept) < wanted:
            twin = next((place for place, other in enumerate(signs) if sign.near(other)), None)
        if twin is None:
            by_text[sign.key] = len(kept)
            kept.append(parent)
            signs.append(sign)
        else:
            folded.setdefault(twin, []).append(parent)
    with_twins = [replace(parent, duplicates=tuple(folded[place])) if place in folded else parent for place, parent in enumerate(kept)]
    return [*with_twins, *parents[read:]]


class _Sign:
    """What a passage is compared by; the MinHash is made only when a passage of about the same length is met."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.key = " ".join(text.lower().split())

    @cached_property
    def words(self) -> list[str]:
        return words(self._text)

    def near(self, other: _Sign) -> bool:
        shorter, longer = sorted((len(self.words), len(other.words)))
        if shorter < _FEWEST_WORDS or shorter < SIMILARITY * longer:
            return self.words == other.words
        return bool(self.minhash.jaccard(other.minhash) >= SIMILARITY)

    @cached_property
    def minhash(self) -> RMinHash:
        made = RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
        made.update([" ".join(self.words[start : start + _SHINGLE]) for start in range(len(self.words) - _SHINGLE + 1)])
        return made
