"""Running headers, footers and page numbers: what stands at the edge of page after page in nearly the same words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from engines.drafts import Draft

_EDGE = 0.12
_FEWEST_PAGES = 3
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")
_PAGE_NUMBER = re.compile(r"(?:page|p[aá]gina|p\.|pg\.?|-|–|—)?\s*\d{1,4}\s*(?:(?:of|de|/|-|–|—)\s*\d{0,4})?\.?", re.I)


def without_furniture(drafts: Sequence[Draft]) -> list[Draft]:
    """Leaves out short blocks in the outer eighth of a page whose words, numbers aside, stand at the same edge of at least three pages and a
    fifth of all; and bare page numbers there or as a page's first or last block, where there are two pages or more."""
    pages = _outermost(drafts)
    if len(pages) < 2:
        return list(drafts)
    outermost = {id(draft) for pair in pages.values() for draft in pair}
    seen: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    for draft in drafts:
        if edge := _edge(draft):
            seen[edge, _pattern(draft.text)].add(draft.page)
    running = {key for key, where in seen.items() if len(where) >= max(_FEWEST_PAGES, len(pages) / 5)}
    return [draft for draft in drafts if not _is_furniture(draft, running, id(draft) in outermost)]


def _outermost(drafts: Sequence[Draft]) -> dict[int | None, tuple[Draft, Draft]]:
    """The highest and the lowest block of each page."""
    found: dict[int | None, tuple[Draft, Draft]] = {}
    for draft in drafts:
        if draft.box:
            high, low = found.get(draft.page, (draft, draft))
            found[draft.page] = (min(high, draft, key=_top), max(low, draft, key=_top))
    return found


def _top(draft: Draft) -> float:
    return draft.box[1] if draft.box else 0.0


def _is_furniture(draft: Draft, running: set[tuple[str, str]], outermost: bool) -> bool:
    edge = _edge(draft)
    if (edge or outermost) and _PAGE_NUMBER.fullmatch(draft.text.strip()):
        return True
    return edge is not None and (edge, _pattern(draft.text)) in running


def _edge(draft: Draft) -> str | None:
    if not draft.box or len(draft.text) > 200 or draft.kind in ("table", "code"):
        return None
    if draft.box[3] < _EDGE:
        return "top"
    return "bottom" if draft.box[1] > 1 - _EDGE else None


def _pattern(text: str) -> str:
    return _DIGITS.sub("#", " ".join(text.lower().split()))
