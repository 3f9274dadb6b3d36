"""Neighbours put together until no two fit any more.

Boundaries are given up from the weakest to the strongest, those of one rank in the order of a hash of the words beside them, each if
what it holds apart fits into one pack. So a boundary's fate depends on the text near it and not on where the document begins:
an inserted paragraph moves the cuts around it and no others (the aim of content-defined chunking; Muthitacharoen et al., LBFS, 2001).
"""

from __future__ import annotations

from collections.abc import Sequence


def pack(sizes: Sequence[int], strengths: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Ranges `[start, end)` of items in order. `strengths[i]` is that of the boundary before item i (the first is not used). A range is
    over `limit` only where a single item is."""
    if not sizes:
        return []
    first = list(range(len(sizes)))
    last = list(range(len(sizes)))
    total = list(sizes)
    is_boundary = [True] * len(sizes)
    for i in sorted(range(1, len(sizes)), key=lambda i: (*strengths[i], i)):
        left, right = first[i - 1], last[i]
        if total[left] + total[i] <= limit:
            total[left] += total[i]
            is_boundary[i] = False
            first[right], last[left] = left, right
    starts = [i for i in range(len(sizes)) if i == 0 or is_boundary[i]]
    return list(zip(starts, [*starts[1:], len(sizes)], strict=True))
