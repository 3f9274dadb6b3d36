"""How far two rankings agree when their passages are cut differently: two are the same where half of the shorter one lies in the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

SAME = 0.5


@dataclass(frozen=True, slots=True)
class Found:
    """A passage of a ranking, in its document's text. `words` instead where the two texts were made differently, so that places say nothing."""

    parent_id: UUID
    document_id: UUID
    char_start: int
    char_end: int
    words: frozenset[str] = frozenset()


def pairs(a: Sequence[Found], b: Sequence[Found]) -> list[tuple[int, int]]:
    """Ranks from 0 in both; each passage once, the better ones of `a` first."""
    free = dict(enumerate(b))
    matched = []
    for rank, passage in enumerate(a):
        best = max(free, key=lambda other: likeness(passage, free[other]), default=None)
        if best is not None and likeness(passage, free[best]) >= SAME:
            del free[best]
            matched.append((rank, best))
    return matched


def overlap(a: Sequence[Found], b: Sequence[Found]) -> float:
    """Share of the longer ranking that both have; 1 for two that found nothing."""
    longest = max(len(a), len(b))
    return len(pairs(a, b)) / longest if longest else 1.0


def likeness(one: Found, other: Found) -> float:
    """0 to 1."""
    if one.document_id != other.document_id:
        return 0.0
    if one.words or other.words:
        shorter = min(len(one.words), len(other.words))
        return len(one.words & other.words) / shorter if shorter else 0.0
    shared = min(one.char_end, other.char_end) - max(one.char_start, other.char_start)
    shorter = min(one.char_end - one.char_start, other.char_end - other.char_start)
    return max(0, shared) / shorter if shorter > 0 else 0.0
