"""Rewriting of ODT files for docling: runs, marks and notes as plain text."""

from __future__ import annotations

from collections.abc import Iterator

from engines.parse.ooxml import Package
from engines.parse.opendocument import (
    CONTENT,
    PLAIN,
    HiddenText,
    Style,
    find_page_ground,
    format_paragraph,
    list_embedded,
    read_fills,
    read_marks,
    read_styles,
)
from engines.parse.visibility import Color
from engines.parse.xml_parts import Element, get_attribute, iter_named, strip_namespace

_MAX_SAMPLE = 60
_KEPT = ("frame", "annotation")


def rewrite_odt(package: Package) -> None:
    root = package.load(CONTENT)
    marks, styles = read_marks(package.archive), read_styles(package.archive)
    fills, page_ground = read_fills(styles), find_page_ground(styles)
    notes: list[str] = []
    inside_notes = {
        id(paragraph) for note in iter_named(root, "note") for paragraph in iter_named(note, "p")
    }
    body = next((child for child in root if strip_namespace(child.tag) == "body"), root)
    namespace = ""
    for paragraph, ground, inherited in list(_iter_paragraphs(body, page_ground, fills)):
        if id(paragraph) in inside_notes:
            continue
        namespace = paragraph.tag[: paragraph.tag.rfind("}") + 1]
        hidden = HiddenText(ground)
        text = format_paragraph(paragraph, marks, notes, hidden, inherited)
        package.hidden += [f'text "{words[:_MAX_SAMPLE]}"' for words in hidden.texts]
        paragraph[:] = [child for child in paragraph.iter() if _is_kept(child)]
        for child in paragraph:
            child.tail = None
        paragraph.text = text
    if notes:
        container = next(iter_named(body, "text"), body)
        for number, note in enumerate(notes, 1):
            added = Element(f"{namespace}p")
            added.text = f"[^{number}]: {note}"
            container.append(added)
    package.embedded += list_embedded(package.archive)


def _iter_paragraphs(
    element: Element, ground: Color | None, fills: dict[str, Color | None], inherited: Style = PLAIN
) -> Iterator[tuple[Element, Color | None, Style]]:
    """Yield the paragraphs with the color of what they stand on, and what a hidden section sets."""
    for child in element:
        name = strip_namespace(child.tag)
        own_ground = fills.get(get_attribute(child, "style-name"), ground)
        is_hidden = name == "section" and get_attribute(child, "display") == "none"
        if name in ("p", "h"):
            yield child, ground, inherited
        yield from _iter_paragraphs(
            child, own_ground, fills, {"hidden": True} if is_hidden else inherited
        )


def _is_kept(element: Element) -> bool:
    return strip_namespace(element.tag) in _KEPT
