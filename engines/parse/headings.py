"""Levels of headings that were found by their looks, from the sizes that occur in the whole document."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engines.drafts import Draft

_DEEPEST = 4
_SAME = 0.05
_NUMBER = re.compile(r"(?:(?:chapter|section|cap[ií]tulo|se[cç][aã]o|artigo|article|part|parte)\s+)?(\d{1,3}(?:\.\d{1,3})*)\.?\s", re.I)


def with_levels(drafts: Sequence[Draft]) -> list[Draft]:
    """The largest size is level 1, the next 2, down to 4; sizes within 5 % are one. A number such as 2.3.1 puts a heading below the level
    of its own first part."""
    found = [draft for draft in drafts if draft.kind == "heading" and draft.size is not None]
    ranks = _ranks([draft.size for draft in found if draft.size is not None])
    tops = [ranks[draft.size] for draft in found if draft.size is not None and _depth(draft.text) == 1]
    top = min(tops, default=0)
    for draft in found:
        depth = _depth(draft.text)
        if draft.size is not None:
            draft.level = min(6, top + depth - 1) if depth > 1 and top else min(_DEEPEST, ranks[draft.size])
    return list(drafts)


def _ranks(sizes: Sequence[float]) -> dict[float, int]:
    ranks: dict[float, int] = {}
    rank, last = 0, 0.0
    for size in sorted(set(sizes), reverse=True):
        if not rank or size < last * (1 - _SAME):
            rank, last = rank + 1, size
        ranks[size] = rank
    return ranks


def _depth(text: str) -> int:
    number = _NUMBER.match(text)
    return number[1].count(".") + 1 if number else 0
