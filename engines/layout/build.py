"""From a page's runs to its drafts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from engines.drafts import Draft, has_header, table
from engines.layout.lines import Line, Measure, Text, measure, texts
from engines.layout.order import regions
from engines.layout.runs import JOIN_GAP, Page, Row, Run, body_size, bounds, line_height, rows
from engines.layout.tables import tables
from schemas.values import Box

_OCR_GAP = 0.45
"""An OCR line box ends where a line ends: what is apart is apart."""


def body_of(pages: Iterable[Page]) -> float:
    """The letter height of body text over several pages."""
    return body_size(run for page in pages for run in page.runs)


def build(page: Page, body: float, *, styled: bool) -> list[Draft]:
    """Blocks in reading order. `styled` says that fonts are known; without, sizes are rough and weight is not known."""
    drafts: list[Draft] = []
    for region in regions(page.runs):
        drafts += _region(page, rows(region, JOIN_GAP if styled else _OCR_GAP), body, styled)
    return _lists_joined(drafts)


def _region(page: Page, found: Sequence[Row], body: float, styled: bool) -> Iterator[Draft]:
    """Known tables stand where they are; between them, rows are searched for others."""
    start = 0
    for i in [*(i for i, row in enumerate(found) if row.runs[0].table), len(found)]:
        yield from _stretch(page, found[start:i], body, styled)
        if i < len(found):
            yield _table(page, found[i].runs[0].table or [], found[i].runs)
        start = i + 1


def _stretch(page: Page, found: Sequence[Row], body: float, styled: bool) -> Iterator[Draft]:
    done = 0
    for each in tables(found, line_height(found)):
        yield from _prose(page, found[done : each.start], body, styled)
        yield _table(page, each.cells, [run for row in found[each.start : each.end] for run in row.runs])
        done = each.end
    yield from _prose(page, found[done:], body, styled)


def _table(page: Page, cells: list[list[str]], runs: Sequence[Run]) -> Draft:
    text, end = table(cells, int(has_header(cells, by_convention=True)))
    return _placed(page, Draft("table", text, header_end=end), runs)


def _prose(page: Page, found: Sequence[Row], body: float, styled: bool) -> Iterator[Draft]:
    if not found:
        return
    lines = [Line.of(row) for row in found]
    usual = measure(lines, body, styled)
    for text in texts(lines, usual):
        yield _draft(page, text, usual)


def _draft(page: Page, text: Text, usual: Measure) -> Draft:
    runs = [run for line in text.lines for run in line.runs]
    draft = Draft(text.kind, text.text)
    if text.kind == "heading":
        size = max(line.size for line in text.lines)
        draft.size = round(max(size, usual.body) * page.unit, 2)
    elif text.kind == "code":
        draft.text = f"```\n{text.text}\n```"
    return _placed(page, draft, runs)


def _placed(page: Page, draft: Draft, runs: Sequence[Run]) -> Draft:
    draft.page = page.number
    draft.box = page.place(bounds(runs))
    return draft


def _lists_joined(drafts: Sequence[Draft]) -> list[Draft]:
    """Items that follow one another are one list."""
    joined: list[Draft] = []
    for draft in drafts:
        if joined and draft.kind == "list" == joined[-1].kind:
            joined[-1].text += f"\n{draft.text}"
            joined[-1].box = _around(joined[-1].box, draft.box)
        else:
            joined.append(draft)
    return joined


def _around(one: Box | None, other: Box | None) -> Box | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])
