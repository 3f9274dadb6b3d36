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
    fifth of all; and bare page numbers there, where there are two pages or more."""
    pages = {draft.page for draft in drafts if draft.box}
    if len(pages) < 2:
        return list(drafts)
    seen: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    for draft in drafts:
        if edge := _edge(draft):
            seen[edge, _pattern(draft.text)].add(draft.page)
    running = {key for key, where in seen.items() if len(where) >= max(_FEWEST_PAGES, len(pages) / 5)}
    return [draft for draft in drafts if not _is_furniture(draft, running)]


def _is_furniture(draft: Draft, running: set[tuple[str, str]]) -> bool:
    edge = _edge(draft)
    return edge is not None and ((edge, _pattern(draft.text)) in running or _PAGE_NUMBER.fullmatch(draft.text.strip()) is not None)


def _edge(draft: Draft) -> str | None:
    if not draft.box or len(draft.text) > 200 or draft.kind in ("table", "code"):
        return None
    if draft.box[3] < _EDGE:
        return "top"
    return "bottom" if draft.box[1] > 1 - _EDGE else None


def _pattern(text: str) -> str:
    return _DIGITS.sub("#", " ".join(text.lower().split()))
