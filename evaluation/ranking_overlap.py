"""Overlap of two rankings whose passages are cut differently.

Two passages match if half of the shorter one is contained in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

MIN_OVERLAP = 0.5


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage of a ranking, by its range in the document's text.

    `words` replace the range if the two texts were produced differently, so that offsets are not
    comparable.
    """

    parent_id: UUID
    document_id: UUID
    char_start: int
    char_end: int
    words: frozenset[str] = frozenset()


def match_passages(a: Sequence[RankedPassage], b: Sequence[RankedPassage]) -> list[tuple[int, int]]:
    """Return the ranks, from 0, of matching passages in both.

    Matches each passage once, in the order of `a`.
    """
    unmatched = dict(enumerate(b))
    matches = []
    for rank, passage in enumerate(a):
        best_rank = max(
            unmatched, key=lambda other: compute_similarity(passage, unmatched[other]), default=None
        )
        if (
            best_rank is not None
            and compute_similarity(passage, unmatched[best_rank]) >= MIN_OVERLAP
        ):
            del unmatched[best_rank]
            matches.append((rank, best_rank))
    return matches


def compute_overlap(a: Sequence[RankedPassage], b: Sequence[RankedPassage]) -> float:
    """Return the share of the longer ranking that both have; 1 for two empty rankings."""
    max_length = max(len(a), len(b))
    return len(match_passages(a, b)) / max_length if max_length else 1.0


def compute_similarity(first: RankedPassage, second: RankedPassage) -> float:
    """Return the overlap of two passages, from 0 to 1."""
    if first.document_id != second.document_id:
        return 0.0
    if first.words or second.words:
        min_length = min(len(first.words), len(second.words))
        return len(first.words & second.words) / min_length if min_length else 0.0
    n_shared = min(first.char_end, second.char_end) - max(first.char_start, second.char_start)
    min_length = min(first.char_end - first.char_start, second.char_end - second.char_start)
    return max(0, n_shared) / min_length if min_length > 0 else 0.0
