"""Rewriting of ODT files for docling: runs, marks and notes as plain text."""

from __future__ import annotations

from engines.parse.hidden_text import is_hidden_text_kept
from engines.parse.ooxml import Package
from engines.parse.opendocument import CONTENT, format_paragraph, read_marks
from engines.parse.xml_parts import Element, iter_named, strip_namespace

_MAX_SAMPLE = 60
_KEPT = ("frame", "annotation")


def rewrite_odt(package: Package) -> None:
    root = package.load(CONTENT)
    marks = read_marks(package.archive)
    if is_hidden_text_kept():
        marks = {name: own - {"hidden"} for name, own in marks.items()}
    notes: list[str] = []
    inside_notes = {
        id(paragraph) for note in iter_named(root, "note") for paragraph in iter_named(note, "p")
    }
    body = next((child for child in root if strip_namespace(child.tag) == "body"), root)
    namespace = ""
    for paragraph in list(iter_named(body, "p", "h")):
        if id(paragraph) in inside_notes:
            continue
        namespace = paragraph.tag[: paragraph.tag.rfind("}") + 1]
        text = format_paragraph(paragraph, marks, notes)
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


def _is_kept(element: Element) -> bool:
    return strip_namespace(element.tag) in _KEPT
