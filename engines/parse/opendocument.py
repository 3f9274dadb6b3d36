"""Paragraphs of OpenDocument files as text with their marks: struck, raised, lowered, notes.

Source: OpenDocument 1.3, part 3, 6.1 (text), 16.29 (text properties).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

from engines.parse.scripts import format_struck, format_subscript, format_superscript
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_attribute,
    iter_named,
    read_xml,
    strip_namespace,
)

CONTENT = "content.xml"
Marks = dict[str, frozenset[str]]
"""Marks by style name."""


def read_marks(archive: zipfile.ZipFile) -> Marks:
    """Return the marks of each style: struck, raised, lowered, hidden, white."""
    styles: dict[str, tuple[str, frozenset[str]]] = {}
    for part in ("styles.xml", CONTENT):
        if part in archive.namelist():
            for element in iter_named(read_xml(archive, part), "style"):
                name, parent = get_attribute(element, "name"), ""
                parent = get_attribute(element, "parent-style-name")
                styles[name] = parent, frozenset(_iter_marks(element))
    return {name: _inherit_marks(name, styles) for name in styles}


def _inherit_marks(name: str, styles: dict[str, tuple[str, frozenset[str]]]) -> frozenset[str]:
    marks: frozenset[str] = frozenset()
    seen: set[str] = set()
    while name in styles and name not in seen:
        seen.add(name)
        name, own = styles[name]
        marks |= own
    return marks


def _iter_marks(style: Element) -> Iterator[str]:
    text = find_named(style, "text-properties")
    if text is not None:
        if get_attribute(text, "text-line-through-style", "none") != "none":
            yield "struck"
        position = get_attribute(text, "text-position").split(" ")[0]
        if position == "super" or (
            position.rstrip("%").lstrip("+").isdigit() and position[0] != "0"
        ):
            yield "raised"
        elif position == "sub" or position.startswith("-"):
            yield "lowered"
        if get_attribute(text, "display") == "none":
            yield "hidden"


def format_paragraph(paragraph: Element, marks: Marks, notes: list[str] | None = None) -> str:
    """Join the runs of a paragraph exactly as written; notes are added to `notes`."""
    own = marks.get(get_attribute(paragraph, "style-name"), frozenset())
    return "".join(_iter_runs(paragraph, own & {"struck", "hidden"}, marks, notes))


def _iter_runs(
    element: Element, active: frozenset[str], marks: Marks, notes: list[str] | None
) -> Iterator[str]:
    yield _mark(element.text or "", active)
    for child in element:
        match strip_namespace(child.tag):
            case "s":
                yield " " * min(int(get_attribute(child, "c", "1")), 1000)
            case "tab" | "line-break":
                yield " "
            case "note" if notes is not None:
                body = find_named(child, "note-body")
                words = "" if body is None else format_body(body, marks)
                notes.append(words)
                yield f"[^{len(notes)}]"
            case "annotation" | "annotation-end" | "note" | "frame" | "ruby-text":
                pass
            case _:
                own = marks.get(get_attribute(child, "style-name"), frozenset())
                yield from _iter_runs(child, active | own, marks, notes)
        yield _mark(child.tail or "", active)


def format_body(body: Element, marks: Marks) -> str:
    return " ".join(
        " ".join(format_paragraph(paragraph, marks) for paragraph in iter_named(body, "p")).split()
    )


def _mark(text: str, marks: frozenset[str]) -> str:
    if "hidden" in marks:
        return ""
    if "raised" in marks:
        text = format_superscript(text)
    elif "lowered" in marks:
        text = format_subscript(text)
    return format_struck(text) if "struck" in marks else text
