"""Data of charts and text of diagrams in office files.

Source: ECMA-376 part 1, 21.2 (charts), 21.4 (diagrams).
"""

from __future__ import annotations

from engines.parse.number_formats import format_general, format_number
from engines.parse.refusals import spend
from engines.parse.xml_parts import Element, find_named, iter_named

_MAX_POINTS = 10_000


def read_chart(root: Element) -> tuple[str, list[list[str]]]:
    """Return a chart's title and its data: a header row, then a row for each category."""
    title = find_named(root, "chart", "title")
    words = _read_text(title) if title is not None else ""
    header, columns = [""], []
    categories: dict[int, str] = {}
    for series in iter_named(root, "ser"):
        name = find_named(series, "tx")
        header.append(_read_points(name).get(0, "") if name is not None else "")
        for source in ("cat", "xVal"):
            element = find_named(series, source)
            if element is not None:
                categories = {**_read_points(element), **categories}
        values: dict[int, str] = {}
        for source in ("val", "yVal"):
            element = find_named(series, source)
            if element is not None:
                values = _read_points(element)
        columns.append(values)
    indexes = sorted({*categories, *(index for values in columns for index in values)})
    rows = [
        [categories.get(index, str(index + 1)), *(values.get(index, "") for values in columns)]
        for index in indexes
    ]
    spend(sum(len(cell) for row in rows for cell in row))
    if len(header) == 2 and not header[1]:
        header[1] = words
    return words, [header, *rows] if rows else []


def _read_points(element: Element) -> dict[int, str]:
    """Return the cached points by index; a series' name may be a literal value instead."""
    code = next((child.text or "" for child in iter_named(element, "formatCode")), "")
    points: dict[int, str] = {}
    # The levels of categories such as quarter within year are joined, the outermost first.
    caches = list(iter_named(element, "lvl"))[::-1] or [element]
    for level in caches:
        outer = ""
        found = {
            int(point.get("idx", "0")): _format_point(find_named(point, "v"), code)
            for point in iter_named(level, "pt")
        }
        if level is caches[0]:
            points = found
            continue
        joined = {}
        for index in sorted(found):
            outer = points.get(index, outer)
            joined[index] = f"{outer} {found[index]}".strip()
        points = joined
    if not points:
        literal = next(iter_named(element, "v"), None)
        points = {0: literal.text or ""} if literal is not None else {}
    return dict(list(points.items())[:_MAX_POINTS])


def _format_point(value: Element | None, code: str) -> str:
    text = (value.text or "").strip() if value is not None else ""
    try:
        number = float(text)
    except ValueError:
        return text
    return format_number(number, code) if code not in ("", "General") else format_general(number)


def read_diagram(root: Element) -> list[str]:
    """Return the text of a diagram's nodes in order."""
    lines = []
    for point in iter_named(root, "pt"):
        if point.get("type", "node") in ("node", "asst") and (words := _read_text(point)):
            lines.append(words)
    return lines


def _read_text(element: Element) -> str:
    paragraphs = (
        "".join(run.text or "" for run in iter_named(paragraph, "t"))
        for paragraph in iter_named(element, "p")
    )
    return " ".join(" ".join(paragraphs).split())
