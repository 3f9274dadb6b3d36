"""Removal of running headers, footers and page numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from engines.parsed_blocks import ParsedBlock

_EDGE_SHARE = 0.12
_MIN_PAGES = 3
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")
_PAGE_NUMBER = re.compile(
    r"(?:page|p[aá]gina|p\.|pg\.?|-|–|—)?\s*\d{1,4}\s*(?:(?:of|de|/|-|–|—)\s*\d{0,4})?\.?", re.I
)


def remove_running_headers(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Return the blocks without running headers, footers and page numbers.

    A running header is a short block in the outer eighth of a page whose text, numbers aside,
    occurs at the same edge of at least three pages and a fifth of all. Page numbers are removed
    there and as the first or last block of a page, in documents of at least two pages.
    """
    pages = _find_outermost_blocks(blocks)
    if len(pages) < 2:
        return list(blocks)
    outermost_ids = {id(block) for pair in pages.values() for block in pair}
    pages_by_pattern: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    for block in blocks:
        if edge := _find_edge(block):
            pages_by_pattern[edge, _normalize_text(block.text)].add(block.page)
    running_patterns = {
        key
        for key, page_numbers in pages_by_pattern.items()
        if len(page_numbers) >= max(_MIN_PAGES, len(pages) / 5)
    }
    return [
        block
        for block in blocks
        if not _is_running_header(block, running_patterns, id(block) in outermost_ids)
    ]


def _find_outermost_blocks(
    blocks: Sequence[ParsedBlock],
) -> dict[int | None, tuple[ParsedBlock, ParsedBlock]]:
    """Return the highest and the lowest block of each page."""
    outermost_by_page: dict[int | None, tuple[ParsedBlock, ParsedBlock]] = {}
    for block in blocks:
        if block.box:
            high, low = outermost_by_page.get(block.page, (block, block))
            outermost_by_page[block.page] = (
                min(high, block, key=_get_top),
                max(low, block, key=_get_top),
            )
    return outermost_by_page


def _get_top(block: ParsedBlock) -> float:
    return block.box[1] if block.box else 0.0


def _is_running_header(
    block: ParsedBlock, running_patterns: set[tuple[str, str]], is_outermost: bool
) -> bool:
    edge = _find_edge(block)
    if (edge or is_outermost) and _PAGE_NUMBER.fullmatch(block.text.strip()):
        return True
    return edge is not None and (edge, _normalize_text(block.text)) in running_patterns


def _find_edge(block: ParsedBlock) -> str | None:
    if not block.box or len(block.text) > 200 or block.kind in ("table", "code"):
        return None
    if block.box[3] < _EDGE_SHARE:
        return "top"
    return "bottom" if block.box[1] > 1 - _EDGE_SHARE else None


def _normalize_text(text: str) -> str:
    return _DIGITS.sub("#", " ".join(text.lower().split()))
