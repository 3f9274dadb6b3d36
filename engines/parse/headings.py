"""Heading levels by font size and capitals, ranked over the whole document."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engines.parsed_blocks import ParsedBlock

_MAX_LEVEL = 5
_SIZE_TOLERANCE = 0.05
_MAX_PAGES_WITHOUT_COVER = 3
_NUMBER = re.compile(
    r"(?:(?:chapter|section|cap[ií]tulo|se[cç][aã]o|artigo|article|part|parte)\s+)?(\d{1,3}(?:\.\d{1,3})*)\.?\s",
    re.I,
)

HeadingStyle = tuple[float, bool]
"""Size, and whether not in capitals. Larger sizes rank first; within a size, capitals do."""


def assign_levels(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Set the level of each heading that has a size, in place.

    The most prominent style gets level 1, down to level 5; sizes within 5 % count as one. Styles
    that occur on the cover only get level 1. A number such as 2.3.1 puts a heading below the level
    of headings numbered 2.
    """
    headings = [block for block in blocks if block.kind == "heading" and block.size is not None]
    styles = _classify_styles(headings)
    ranks = _rank_styles(headings, styles)
    top_levels = [
        ranks[style]
        for block, style in zip(headings, styles, strict=True)
        if _count_number_depth(block.text) == 1
    ]
    for block, style in zip(headings, styles, strict=True):
        depth = _count_number_depth(block.text)
        block.level = (
            min(6, min(top_levels) + depth - 1)
            if depth > 1 and top_levels
            else min(_MAX_LEVEL, ranks[style])
        )
    return list(blocks)


def _classify_styles(headings: Sequence[ParsedBlock]) -> list[HeadingStyle]:
    sizes = sorted({block.size or 0.0 for block in headings}, reverse=True)
    size_classes: dict[float, float] = {}
    for size in sizes:
        last = next(reversed(size_classes.values()), None)
        size_classes[size] = (
            last if last is not None and size >= last * (1 - _SIZE_TOLERANCE) else size
        )
    return [(size_classes[block.size or 0.0], not block.text.isupper()) for block in headings]


def _rank_styles(
    headings: Sequence[ParsedBlock], styles: Sequence[HeadingStyle]
) -> dict[HeadingStyle, int]:
    cover_styles = _find_cover_styles(headings, styles)
    ordered_styles = sorted(set(styles), key=lambda style: (-style[0], style[1]))
    inner_styles = [style for style in ordered_styles if style not in cover_styles]
    return dict.fromkeys(cover_styles, 1) | {
        style: i + (2 if cover_styles else 1) for i, style in enumerate(inner_styles)
    }


def _find_cover_styles(
    headings: Sequence[ParsedBlock], styles: Sequence[HeadingStyle]
) -> set[HeadingStyle]:
    """Return styles that occur on the first page only, if several later pages have headings."""
    pages = {block.page for block in headings if block.page is not None}
    if len(pages) <= _MAX_PAGES_WITHOUT_COVER:
        return set()
    first = min(page for page in pages if page is not None)
    later_styles = {
        style for block, style in zip(headings, styles, strict=True) if block.page != first
    }
    return set(styles) - later_styles


def _count_number_depth(text: str) -> int:
    number = _NUMBER.match(text)
    return number[1].count(".") + 1 if number else 0
