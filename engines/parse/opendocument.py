"""Paragraphs of OpenDocument files as text with their marks, and the rewriting of ODT files.

Source: OpenDocument 1.3, part 3, 6.1 (text), 16.29 (text properties).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.parse.notices import WHITE, Color, is_hidden_text_kept, is_unseen, parse_color
from engines.parse.ooxml import Package
from engines.parse.scripts import apply_marks
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_attribute,
    iter_named,
    read_xml,
    resolve_inheritance,
    strip_namespace,
)

CONTENT = "content.xml"
STYLES = "styles.xml"
_MANIFEST = "META-INF/manifest.xml"
_OLE_OBJECT = "application/vnd.sun.star.oleobject"
_TRANSPARENT = "transparent"
_POINTS = re.compile(r"(\d+(?:\.\d+)?)pt")
_INHERITED = ("hidden", "color", "ground", "points")
_OF_PARAGRAPH = ("struck", *_INHERITED)

Style = Mapping[str, Any]
"""`struck`, `superscript`, `subscript` and `hidden` as bool, `color` and `ground`, and `points`."""
PLAIN: Style = {}
Marks = dict[str, Style]
"""Properties of each style, inherited ones included."""


@dataclass(slots=True)
class HiddenText:
    """Collects the text that a reader cannot see, on a ground of this color, None if unknown."""

    ground: Color | None = None
    texts: list[str] = field(default_factory=list)

    def covers(self, style: Style) -> bool:
        return bool(style.get("hidden")) or is_unseen(
            style.get("color"), style.get("ground", self.ground), style.get("points")
        )


def read_marks(archive: zipfile.ZipFile) -> Marks:
    return _resolve(
        (style for root in read_styles(archive) for style in iter_named(root, "style")),
        _read_own_marks,
    )


def read_styles(archive: zipfile.ZipFile) -> list[Element]:
    """Return the parts that define styles."""
    return [read_xml(archive, part) for part in (STYLES, CONTENT) if part in archive.namelist()]


def read_fills(roots: Iterable[Element]) -> dict[str, Color | None]:
    """Return the color of each style that fills a page, shape or cell; None for pictures and
    gradients.
    """
    resolved = _resolve(
        (style for root in roots for style in iter_named(root, "style")), _read_own_fill
    )
    return {name: own["fill"] for name, own in resolved.items() if own.get("is_filled")}


def _resolve(styles: Iterable[Element], read_own: Any) -> Marks:
    own = {
        get_attribute(style, "name"): (get_attribute(style, "parent-style-name"), read_own(style))
        for style in styles
    }
    return dict(resolve_inheritance(own))


def _read_own_marks(style: Element) -> dict[str, Any]:
    marks: dict[str, Any] = {}
    for name in ("paragraph-properties", "table-cell-properties", "text-properties"):
        properties = find_named(style, name)
        if properties is None:
            continue
        if (ground := _get_ground(properties)) != _TRANSPARENT:
            marks["ground"] = parse_color(ground)
        if name != "text-properties":
            continue
        if line := get_attribute(properties, "text-line-through-style"):
            marks["struck"] = line != "none"
        if position := get_attribute(properties, "text-position").split(" ")[0]:
            is_raised = position == "super" or (
                position.rstrip("%").lstrip("+").isdigit() and position[0] != "0"
            )
            marks["superscript"] = is_raised
            marks["subscript"] = position == "sub" or position.startswith("-")
        if display := get_attribute(properties, "display"):
            marks["hidden"] = display == "none"
        if color := get_attribute(properties, "color"):
            marks["color"] = parse_color(color)
        if get_attribute(properties, "use-window-font-color") == "true":
            marks["color"] = None
        if size := _POINTS.fullmatch(get_attribute(properties, "font-size")):
            marks["points"] = float(size[1])
    return marks


def _get_ground(properties: Element) -> str:
    return get_attribute(properties, "background-color", _TRANSPARENT)


def _read_own_fill(style: Element) -> dict[str, Any]:
    for name in ("graphic-properties", "drawing-page-properties", "table-cell-properties"):
        properties = find_named(style, name)
        if properties is None:
            continue
        if fill := get_attribute(properties, "fill"):
            color = get_attribute(properties, "fill-color") if fill == "solid" else None
            return {"is_filled": fill != "none", "fill": parse_color(color)}
        if (ground := _get_ground(properties)) != _TRANSPARENT:
            return {"is_filled": True, "fill": parse_color(ground)}
    return {}


def find_page_ground(roots: Iterable[Element]) -> Color | None:
    """Return the color of the pages of a text, None if it is not known."""
    for root in roots:
        for properties in iter_named(root, "page-layout-properties"):
            ground = _get_ground(properties)
            if ground != _TRANSPARENT or find_named(properties, "background-image") is not None:
                return parse_color(ground)
    return WHITE


def format_paragraph(
    paragraph: Element,
    marks: Marks,
    notes: list[str] | None = None,
    hidden: HiddenText | None = None,
    inherited: Style = PLAIN,
) -> str:
    """Join the runs of a paragraph exactly as written; notes are added to `notes`.

    Text that a reader cannot see is left out, and added to `hidden`. `inherited` is the style of
    the shape or cell around the paragraph.
    """
    style = marks.get(get_attribute(paragraph, "style-name"), {})
    own = {name: inherited[name] for name in _INHERITED if name in inherited}
    own |= {name: style[name] for name in _OF_PARAGRAPH if name in style}
    if any(map(_is_hiding, iter_named(paragraph, "hidden-paragraph"))):
        own["hidden"] = True
    return "".join(_iter_runs(paragraph, own, marks, notes, hidden or HiddenText()))


def read_paragraph(
    paragraph: Element, marks: Marks, hidden: HiddenText, inherited: Style = PLAIN
) -> str:
    """Return the paragraph's text with single spaces."""
    return " ".join(format_paragraph(paragraph, marks, None, hidden, inherited).split())


def _iter_runs(
    element: Element, active: Style, marks: Marks, notes: list[str] | None, hidden: HiddenText
) -> Iterator[str]:
    yield _mark(element.text or "", active, hidden)
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
            case "hidden-text":
                field_style = {**active, "hidden": _is_hiding(child)}
                yield from _iter_runs(child, field_style, marks, notes, hidden)
            case "annotation" | "annotation-end" | "note" | "frame" | "ruby-text":
                pass
            case _:
                own = marks.get(get_attribute(child, "style-name"), {})
                yield from _iter_runs(child, {**active, **own}, marks, notes, hidden)
        yield _mark(child.tail or "", active, hidden)


def _is_hiding(field: Element) -> bool:
    return get_attribute(field, "is-hidden") == "true"


def format_body(body: Element, marks: Marks) -> str:
    return " ".join(
        " ".join(format_paragraph(paragraph, marks) for paragraph in iter_named(body, "p")).split()
    )


def _mark(text: str, style: Style, hidden: HiddenText) -> str:
    if hidden.covers(style):
        if text.strip():
            hidden.texts.append(" ".join(text.split()))
        if not is_hidden_text_kept():
            return ""
    return apply_marks(text, [name for name, is_set in style.items() if is_set is True])


def list_embedded(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of files of other programs inside the document."""
    if _MANIFEST not in archive.namelist():
        return []
    return [
        get_attribute(entry, "full-path")
        for entry in iter_named(read_xml(archive, _MANIFEST), "file-entry")
        if get_attribute(entry, "media-type") == _OLE_OBJECT
    ]


# Rewriting of ODT files for docling: runs, marks and notes as plain text.

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
