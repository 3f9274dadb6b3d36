"""XML members of ZIP containers as trees, and the relations between them.

Expat fetches no external entity and bounds the expansion of internal ones.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar
from xml.etree import ElementTree
from xml.parsers import expat

from engines.parse.notices import Color, make_corrupt_error, parse_color

Element = ElementTree.Element
T = TypeVar("T")


@contextmanager
def refuse_damaged_parts(kind: str) -> Iterator[None]:
    """Turn the errors of damaged containers into UnreadableDocument (CORRUPT_DOCUMENT)."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        ElementTree.ParseError,
        expat.ExpatError,
        LookupError,
        ValueError,
        RecursionError,
    ) as error:
        detail = str(error)[:200] or type(error).__name__
        raise make_corrupt_error(f"The {kind} cannot be read: {detail}") from error


def strip_namespace(tag: str) -> str:
    return tag[tag.rfind("}") + 1 :]


def get_attribute(element: Element, name: str, default: str = "") -> str:
    """Return an attribute by its name without namespace."""
    for key, value in element.attrib.items():
        if strip_namespace(key) == name:
            return value
    return default


def get_relation(element: Element, name: str = "id") -> str:
    """Return the id of a relation, which another attribute `id` may stand before."""
    for key, value in element.attrib.items():
        if key.endswith(f"/relationships}}{name}"):
            return value
    return ""


def iter_named(element: Element, *names: str) -> Iterator[Element]:
    """Yield the descendants with one of these names, whatever their namespace."""
    return (child for child in element.iter() if strip_namespace(child.tag) in names)


def iter_children(element: Element | None, *names: str) -> Iterator[Element]:
    """Yield the children with one of these names; none without an element."""
    if element is not None:
        yield from (child for child in element if strip_namespace(child.tag) in names)


def find_named(element: Element | None, *path: str) -> Element | None:
    """Return the first child at a path of names."""
    for name in path:
        element = next(iter_children(element, name), None)
    return element


def read_color_scheme(theme: Element) -> dict[str, Color | None]:
    """Return the colors of an office file's theme by their names, such as dk1."""
    return {
        strip_namespace(element.tag): parse_color(color.get("lastClr") or color.get("val"))
        for scheme in iter_named(theme, "clrScheme")
        for element in scheme
        for color in element
    }


def read_words(element: Element) -> str:
    """Return the text of paragraphs, or of runs without a paragraph, on one line."""
    paragraphs = list(iter_named(element, "p")) or [element]
    texts = ("".join(run.text or "" for run in iter_named(part, "t")) for part in paragraphs)
    return " ".join(" ".join(texts).split())


def resolve_inheritance(own: Mapping[str, tuple[str, Mapping[str, T]]]) -> dict[str, dict[str, T]]:
    """Add to the properties of each style those of its parents, from name → (parent, own)."""
    resolved = {}
    for name in own:
        properties: dict[str, T] = {}
        current, seen = name, set[str]()
        while current in own and current not in seen:
            seen.add(current)
            current, inherited = own[current]
            properties = {**inherited, **properties}
        resolved[name] = properties
    return resolved


def read_xml(archive: zipfile.ZipFile, name: str) -> Element:
    return ElementTree.fromstring(archive.read(name))


def read_relations(archive: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Return kind and member of each relation of a part by id, without external ones."""
    folder, name = posixpath.split(part)
    path = posixpath.join(folder, "_rels", f"{name}.rels")
    if path not in archive.namelist():
        return {}
    return {
        element.get("Id", ""): (
            element.get("Type", "").rpartition("/")[2],
            posixpath.normpath(posixpath.join("/", folder, element.get("Target", ""))).lstrip("/"),
        )
        for element in read_xml(archive, path)
        if element.get("TargetMode") != "External"
    }
