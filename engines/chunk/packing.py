"""Packing of neighboring items until no two fit together.

Boundaries are removed from the weakest to the strongest, those of one rank in the order of a hash
of the words next to them, each if both sides fit into one pack. A boundary therefore depends on the
text near it and not on its distance from the document's start: an inserted paragraph moves only the
cuts around it, which is the aim of content-defined chunking (Muthitacharoen et al., LBFS, 2001).
"""

from __future__ import annotations

from collections.abc import Sequence


def pack(
    sizes: Sequence[int], strengths: Sequence[tuple[int, int]], limit: int
) -> list[tuple[int, int]]:
    """Return the ranges `[start, end)` of items that form a pack, in order.

    `strengths[i]` belongs to the boundary before item i; the first is not used. A range exceeds
    `limit` only if it is a single item.
    """
    if not sizes:
        return []
    # For each pack: its first item by its last one, its last item and total size by its first one.
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
