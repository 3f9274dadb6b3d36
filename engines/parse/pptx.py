"""Rewriting of PPTX files for docling: runs, charts, diagrams, comments, hidden slides.

Source: ECMA-376 part 1, 19 (PresentationML), 21.1 (DrawingML).
"""

from __future__ import annotations

from functools import partial
from xml.etree import ElementTree

from engines.parse.hidden_text import is_hidden_text_kept
from engines.parse.ooxml import Package, join_runs, make_run, read_drawing
from engines.parse.pptx_visibility import PRESENTATION, ParagraphView, SlideView, read_slide_view
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_relation,
    iter_named,
    strip_namespace,
)

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"


def rewrite_pptx(package: Package) -> None:
    relations = package.relate(PRESENTATION)
    slides = [
        relations.get(get_relation(element), ("", ""))[1]
        for element in iter_named(package.load(PRESENTATION), "sldId")
    ]
    size = find_named(package.load(PRESENTATION), "sldSz")
    width, height = (
        (int(size.get("cx", "0")), int(size.get("cy", "0"))) if size is not None else (0, 0)
    )
    for number, part in enumerate(slides, 1):
        if package.has(part):
            _rewrite_slide(package, part, number, (width, height))


def _rewrite_slide(package: Package, part: str, number: int, size: tuple[int, int]) -> None:
    root = package.load(part)
    tree = find_named(root, "cSld", "spTree")
    if tree is None:
        return
    relations = package.relate(part)
    if root.get("show", "1") in ("0", "false"):
        package.hidden.append(f"slide {number}")
        if not is_hidden_text_kept():
            # The slide stays, empty, so that the numbers of the others do not change.
            tree[:] = [child for child in tree if strip_namespace(child.tag) in _FRAME]
            for kind, target in relations.values():
                if kind == "notesSlide" and package.has(target):
                    _clear_notes(package.load(target))
            return
    view = read_slide_view(package, part, root, *size)
    _remove_hidden_shapes(package, tree, number, view)
    views = view.view_paragraphs(tree)
    for container in list(tree.iter()):
        for index, shape in enumerate(list(container)):
            if strip_namespace(shape.tag) == "graphicFrame":
                rows, lines = read_drawing(package, shape, relations)
                if rows:
                    _replace_by_table(shape, rows)
                elif lines:
                    container[index] = _make_text_shape(shape, lines)
    parts = [root]
    for kind, target in relations.values():
        if not package.has(target):
            continue
        if kind == "notesSlide":
            parts.append(package.load(target))
        elif kind == "comments":
            words = [
                " ".join("".join(text.itertext()).split())
                for text in iter_named(package.load(target), "text", "txBody")
            ]
            tree.append(_make_text_shape(None, list(filter(None, words))))
    for tree_root in parts:
        for paragraph in list(iter_named(tree_root, "p")):
            paragraph_view = views.get(id(paragraph), ParagraphView())
            join_runs(paragraph, partial(_get_run_marks, view, paragraph_view), package)


_FRAME = ("nvGrpSpPr", "grpSpPr")


def _clear_notes(root: Element) -> None:
    tree = find_named(root, "cSld", "spTree")
    if tree is not None:
        tree[:] = [child for child in tree if strip_namespace(child.tag) in _FRAME]


def _remove_hidden_shapes(package: Package, tree: Element, number: int, view: SlideView) -> None:
    for shape in list(tree):
        if view.is_off_slide(shape) and any(text.text for text in iter_named(shape, "t")):
            package.hidden.append(f"shape off slide {number}")
            if not is_hidden_text_kept():
                tree.remove(shape)
    for container in list(tree.iter()):
        for shape in list(container):
            name = find_named(shape, f"nv{_capitalize(strip_namespace(shape.tag))}Pr", "cNvPr")
            if name is not None and name.get("hidden", "0") in ("1", "true"):
                package.hidden.append(f"shape {name.get('name', '')} on slide {number}")
                if not is_hidden_text_kept():
                    container.remove(shape)


def _capitalize(name: str) -> str:
    # nvSpPr, nvPicPr, nvGrpSpPr, nvCxnSpPr, nvGraphicFramePr
    return name[:1].upper() + name[1:]


def _get_run_marks(view: SlideView, paragraph_view: ParagraphView, run: Element) -> frozenset[str]:
    properties = find_named(run, "rPr")
    marks = {"hidden"} if view.hides(run, paragraph_view) else set()
    if properties is not None:
        if properties.get("strike", "noStrike") != "noStrike":
            marks.add("struck")
        baseline = properties.get("baseline", "0").rstrip("%")
        if baseline.lstrip("-").isdigit() and int(baseline):
            marks.add("superscript" if int(baseline) > 0 else "subscript")
    return frozenset(marks)


def _replace_by_table(frame: Element, rows: list[list[str]]) -> None:
    data = find_named(frame, "graphic", "graphicData")
    if data is None:
        return
    data.set("uri", _A[1:-1].replace("/main", "/table"))
    data[:] = []
    table = ElementTree.SubElement(data, f"{_A}tbl")
    ElementTree.SubElement(table, f"{_A}tblPr", {"firstRow": "1"})
    grid = ElementTree.SubElement(table, f"{_A}tblGrid")
    for _ in rows[0]:
        ElementTree.SubElement(grid, f"{_A}gridCol", {"w": "100"})
    for row in rows:
        line = ElementTree.SubElement(table, f"{_A}tr", {"h": "100"})
        for text in row:
            cell = ElementTree.SubElement(line, f"{_A}tc")
            _add_text_body(cell, f"{_A}txBody", [text])
            ElementTree.SubElement(cell, f"{_A}tcPr")


def _make_text_shape(frame: Element | None, lines: list[str]) -> Element:
    shape = Element(f"{_P}sp")
    names = ElementTree.SubElement(shape, f"{_P}nvSpPr")
    ElementTree.SubElement(names, f"{_P}cNvPr", {"id": "9999", "name": "Text"})
    ElementTree.SubElement(names, f"{_P}cNvSpPr", {"txBox": "1"})
    ElementTree.SubElement(names, f"{_P}nvPr")
    properties = ElementTree.SubElement(shape, f"{_P}spPr")
    place = find_named(frame, "xfrm")
    if place is not None:
        moved = ElementTree.SubElement(properties, f"{_A}xfrm")
        moved[:] = list(place)
    _add_text_body(shape, f"{_P}txBody", lines)
    return shape


def _add_text_body(parent: Element, tag: str, lines: list[str]) -> None:
    body = ElementTree.SubElement(parent, tag)
    ElementTree.SubElement(body, f"{_A}bodyPr")
    for line in lines:
        paragraph = ElementTree.SubElement(body, f"{_A}p")
        if line:
            paragraph.append(make_run(_A, line))
