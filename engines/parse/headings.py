"""Levels of headings that were found by their looks, from the looks that occur in the whole document."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engines.drafts import Draft

_DEEPEST = 5
_SAME = 0.05
_COVERED_PAGES = 3
_NUMBER = re.compile(r"(?:(?:chapter|section|cap[ií]tulo|se[cç][aã]o|artigo|article|part|parte)\s+)?(\d{1,3}(?:\.\d{1,3})*)\.?\s", re.I)

Look = tuple[float, bool]
"""size, and whether not in capitals: larger ones come first, capitals before others of the same size"""


def with_levels(drafts: Sequence[Draft]) -> list[Draft]:
    """The most prominent look is level 1, the next 2, down to 5; sizes within 5 % are one. What only the cover has is level 1. A number
    such as 2.3.1 puts a heading below the level of its own first part."""
    found = [draft for draft in drafts if draft.kind == "heading" and draft.size is not None]
    looks = _looks(found)
    ranks = _ranks(found, looks)
    tops = [ranks[look] for draft, look in zip(found, looks, strict=True) if _depth(draft.text) == 1]
    for draft, look in zip(found, looks, strict=True):
        depth = _depth(draft.text)
        draft.level = min(6, min(tops) + depth - 1) if depth > 1 and tops else min(_DEEPEST, ranks[look])
    return list(drafts)


def _looks(found: Sequence[Draft]) -> list[Look]:
    sizes = sorted({draft.size or 0.0 for draft in found}, reverse=True)
    classes: dict[float, float] = {}
    for size in sizes:
        last = next(reversed(classes.values()), None)
        classes[size] = last if last is not None and size >= last * (1 - _SAME) else size
    return [(classes[draft.size or 0.0], not draft.text.isupper()) for draft in found]


def _ranks(found: Sequence[Draft], looks: Sequence[Look]) -> dict[Look, int]:
    cover = _on_the_cover(found, looks)
    ordered = sorted(set(looks), key=lambda look: (-look[0], look[1]))
    inner = [look for look in ordered if look not in cover]
    return dict.fromkeys(cover, 1) | {look: i + (2 if cover else 1) for i, look in enumerate(inner)}


def _on_the_cover(found: Sequence[Draft], looks: Sequence[Look]) -> set[Look]:
    """Looks of the first page that no later page has, where several later pages have headings of their own."""
    pages = {draft.page for draft in found if draft.page is not None}
    if len(pages) <= _COVERED_PAGES:
        return set()
    first = min(page for page in pages if page is not None)
    later = {look for draft, look in zip(found, looks, strict=True) if draft.page != first}
    return set(looks) - later


def _depth(text: str) -> int:
    number = _NUMBER.match(text)
    return number[1].count(".") + 1 if number else 0
