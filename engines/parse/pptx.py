"""Rewriting of PPTX files for docling: runs, charts, diagrams, comments, hidden slides.

Source: ECMA-376 part 1, 19 (PresentationML), 21.1 (DrawingML).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from xml.etree import ElementTree

from engines.parse.notices import (
    WHITE,
    Bounds,
    Color,
    is_hidden_text_kept,
    is_off_page,
    is_unseen,
    parse_color,
)
from engines.parse.ooxml import Package, join_runs, make_run, read_drawing
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_relation,
    iter_children,
    iter_named,
    read_color_scheme,
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
            _clear(root)
            for kind, target in relations.values():
                if kind == "notesSlide" and package.has(target):
                    _clear(package.load(target))
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


def _clear(root: Element) -> None:
    tree = find_named(root, "cSld", "spTree")
    if tree is not None:
        tree[:] = list(iter_children(tree, "nvGrpSpPr", "grpSpPr"))


def _remove_hidden_shapes(package: Package, tree: Element, number: int, view: SlideView) -> None:
    for shape in list(tree):
        if view.is_off_slide(shape) and any(text.text for text in iter_named(shape, "t")):
            package.hidden.append(f"shape off slide {number}")
            if not is_hidden_text_kept():
                tree.remove(shape)
    for container in list(tree.iter()):
        for shape in list(container):
            tag = strip_namespace(shape.tag)
            # nvSpPr, nvPicPr, nvGrpSpPr, nvCxnSpPr, nvGraphicFramePr
            name = find_named(shape, f"nv{tag[:1].upper()}{tag[1:]}Pr", "cNvPr")
            if name is not None and name.get("hidden", "0") in ("1", "true"):
                package.hidden.append(f"shape {name.get('name', '')} on slide {number}")
                if not is_hidden_text_kept():
                    container.remove(shape)


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


# Colors and places of PPTX shapes, to tell text that a reader cannot see.
#
# Source: ECMA-376 part 1, 19.3.1 (slides), 20.1.2.3 (colors), 20.1.8 (fills).

PRESENTATION = "ppt/presentation.xml"
_FILLS = ("solidFill", "gradFill", "blipFill", "pattFill", "grpFill", "noFill")
_SHAPES = ("sp", "pic", "graphicFrame", "grpSp", "cxnSp")
_COLORED = ("solidFill", "fillRef", "bgRef", "fontRef")
_TEXT_STYLES = {"title": "titleStyle", "body": "bodyStyle"}
"""Styles of the master's texts by the kind of a placeholder; others have `otherStyle`."""
_TITLES, _FOOTERS = ("title", "ctrTitle"), ("dt", "ftr", "sldNum", "hdr")
_FIRST_BACKGROUND = "1001"
"""The plain one of the theme's backgrounds; others may be gradients or pictures."""
_HUNDREDTHS, _OPAQUE = 100, 100_000


@dataclass(frozen=True, slots=True)
class ParagraphView:
    """The color behind a paragraph, and the properties that its runs inherit, nearest first."""

    ground: Color | None = None
    inherited: tuple[Element, ...] = ()


@dataclass(frozen=True, slots=True)
class SlideView:
    """Background of a slide's texts: its own color and the areas painted on it.

    `masters` are the layout and the master, whose placeholders the shapes of the slide inherit
    from. `default_style` is that of texts outside of placeholders.
    """

    scheme: dict[str, Color | None]
    ground: Color | None
    painted: tuple[tuple[Element, Bounds | None], ...]
    masters: tuple[Element, ...]
    default_style: Element | None
    width: float
    height: float

    def is_off_slide(self, shape: Element) -> bool:
        bounds = _find_bounds(self._list_ancestors(shape))
        return bounds is not None and is_off_page(bounds, self.width, self.height)

    def view_paragraphs(self, tree: Element) -> dict[int, ParagraphView]:
        """Return what is behind and above each paragraph, by its id."""
        views: dict[int, ParagraphView] = {}
        for shape in iter_named(tree, "sp"):
            shapes = self._list_ancestors(shape)
            ground = self._find_ground(shapes)
            for paragraph in iter_named(shape, "p"):
                inherited = tuple(self._list_inherited(shapes, paragraph))
                views[id(paragraph)] = ParagraphView(ground, inherited)
        for cell in iter_named(tree, "tc"):
            # Cells without a fill of their own have that of the table's style.
            fill = _find_fill(find_named(cell, "tcPr"))
            view = ParagraphView(self.read_color(fill)[0] if fill is not None else None)
            views |= {id(paragraph): view for paragraph in iter_named(cell, "p")}
        return views

    def hides(self, run: Element, view: ParagraphView) -> bool:
        own = find_named(run, "rPr")
        properties = [*([] if own is None else [own]), *view.inherited]
        fill = next(
            (fill for item in properties if (fill := _find_text_fill(item)) is not None), None
        )
        color, opacity = self.read_color(fill)
        size = next((size for item in properties if (size := item.get("sz"))), "")
        points = int(size) / _HUNDREDTHS if size.isdigit() else None
        return is_unseen(color, view.ground, points, opacity)

    def _list_ancestors(self, shape: Element) -> list[Element]:
        """Return a shape, and the placeholders of layout and master that it inherits from."""
        found = [shape]
        for root in self.masters:
            place = _find_placeholder(found[-1])
            above = None if place is None else _match_placeholder(root, place)
            found += [] if above is None else [above]
        return found

    def _list_inherited(self, shapes: list[Element], paragraph: Element) -> Iterator[Element]:
        """Yield the properties of a paragraph's level: of lists, of the shape, and of the master's
        texts.
        """
        properties = find_named(paragraph, "pPr")
        level = properties.get("lvl", "0") if properties is not None else "0"
        name = f"lvl{int(level) + 1 if level.isdigit() else 1}pPr"
        place = _find_placeholder(shapes[0])
        default = self.default_style
        if place is not None:
            kind = _TEXT_STYLES.get(_get_kind(place), "otherStyle")
            default = find_named(self.masters[-1], "txStyles", kind) if self.masters else None
        lists = [find_named(shape, "txBody", "lstStyle") for shape in shapes]
        references = [find_named(shape, "style", "fontRef") for shape in shapes[:1]]
        found = [find_named(item, name, "defRPr") for item in lists]
        found += [*references, find_named(default, name, "defRPr")]
        yield from (item for item in found if item is not None)

    def _find_ground(self, shapes: list[Element]) -> Color | None:
        for shape in shapes:
            if (fill := _find_shape_fill(shape)) is not None:
                if strip_namespace(fill.tag) != "noFill":
                    return self.read_color(fill)[0]
                break
        bounds = _find_bounds(shapes)
        is_painted = any(
            other is not shapes[0] and (bounds is None or area is None or _overlap(bounds, area))
            for other, area in self.painted
        )
        return None if is_painted else self.ground

    def read_color(self, fill: Element | None) -> tuple[Color | None, float]:
        """Return a fill's color, None if it is no plain one, and its opacity."""
        if fill is None or strip_namespace(fill.tag) not in _COLORED:
            return None, 1.0
        for element in fill:
            name, value = strip_namespace(element.tag), element.get("val")
            alpha = find_named(element, "alpha")
            opacity = int(alpha.get("val", _OPAQUE)) / _OPAQUE if alpha is not None else 1.0
            # Shades and tints change the color.
            if any(strip_namespace(child.tag) != "alpha" for child in element):
                return None, opacity
            if name == "srgbClr":
                return parse_color(value), opacity
            if name == "schemeClr":
                return self.scheme.get(value or ""), opacity
        return None, 1.0


def read_slide_view(
    package: Package, part: str, root: Element, width: float, height: float
) -> SlideView:
    """Read what is behind a slide's texts, from its layout and master too."""
    masters = _list_masters(package, part)
    chain = [root, *masters]
    default_style = find_named(package.load(PRESENTATION), "defaultTextStyle")
    view = SlideView(
        _read_scheme(package, part, chain), None, (), tuple(masters), default_style, width, height
    )
    ground: Color | None = WHITE
    for element in chain:
        background = find_named(element, "cSld", "bg")
        if background is not None:
            fill = _find_fill(find_named(background, "bgPr"))
            reference = find_named(background, "bgRef")
            if fill is None and reference is not None:
                fill = reference if reference.get("idx") == _FIRST_BACKGROUND else None
            ground, _ = view.read_color(fill)
            break
    painted = [
        (shape, _find_bounds([shape]))
        for depth, element in enumerate(chain)
        for shape in _iter_shapes(element)
        if _is_painted(shape)
        # The texts of a layout or master are placeholders that the slide replaces.
        and not (depth and _find_placeholder(shape) is not None)
    ]
    return replace(view, ground=ground, painted=tuple(painted))


def _list_masters(package: Package, part: str) -> list[Element]:
    """Return the layout of a slide and its master."""
    found = []
    for kind in ("slideLayout", "slideMaster"):
        part = _find_related(package, part, kind)
        if not part:
            break
        found.append(package.load(part))
    return found


def _find_related(package: Package, part: str, kind: str) -> str:
    targets = [target for name, target in package.relate(part).values() if name == kind]
    return targets[0] if targets and package.has(targets[0]) else ""


def _read_scheme(package: Package, part: str, chain: list[Element]) -> dict[str, Color | None]:
    """Return the theme's colors by the names that slides use, such as bg1.

    A slide or layout may use other names than its master.
    """
    master = _find_related(package, _find_related(package, part, "slideLayout"), "slideMaster")
    theme = _find_related(package, master, "theme") if master else ""
    if not theme:
        return {}
    colors = read_color_scheme(package.load(theme))
    overrides = [find_named(root, "clrMapOvr", "overrideClrMapping") for root in chain]
    own_names = next((item for item in overrides if item is not None), None)
    names = own_names if own_names is not None else find_named(package.load(master), "clrMap")
    mapped = dict(names.attrib) if names is not None else {}
    return colors | {name: colors.get(target) for name, target in mapped.items()}


def _iter_shapes(root: Element) -> Iterator[Element]:
    tree = find_named(root, "cSld", "spTree")
    if tree is not None:
        yield from iter_named(tree, "sp", "pic")


def _is_painted(shape: Element) -> bool:
    fill = _find_shape_fill(shape)
    has_fill = fill is not None and strip_namespace(fill.tag) != "noFill"
    return has_fill or strip_namespace(shape.tag) == "pic"


def _find_shape_fill(shape: Element) -> Element | None:
    """Return the fill of a shape, which may be `noFill`, or that of its style."""
    fill = _find_fill(find_named(shape, "spPr"))
    reference = find_named(shape, "style", "fillRef")
    has_style_fill = reference is not None and reference.get("idx", "0") != "0"
    return reference if fill is None and has_style_fill else fill


def _find_fill(properties: Element | None) -> Element | None:
    return next(iter_children(properties, *_FILLS), None)


def _find_text_fill(properties: Element) -> Element | None:
    is_reference = strip_namespace(properties.tag) == "fontRef" and len(properties)
    return properties if is_reference else _find_fill(properties)


def _find_placeholder(shape: Element) -> Element | None:
    return find_named(shape, "nvSpPr", "nvPr", "ph")


def _match_placeholder(root: Element, place: Element) -> Element | None:
    """Return the shape of a layout or master that a placeholder inherits from."""
    kind = _get_kind(place)
    by_kind = None
    for shape in _iter_shapes(root):
        other = _find_placeholder(shape)
        if other is None:
            continue
        if "idx" in place.attrib and other.get("idx") == place.get("idx"):
            return shape
        if by_kind is None and _get_kind(other) == kind:
            by_kind = shape
    return by_kind


def _get_kind(place: Element) -> str:
    kind = place.get("type", "body")
    return "title" if kind in _TITLES else kind if kind in _FOOTERS else "body"


def _find_bounds(shapes: list[Element]) -> Bounds | None:
    """Return the place of a shape, or of the first one that it inherits from."""
    for shape in shapes:
        place = find_named(shape, "spPr", "xfrm")
        place = place if place is not None else find_named(shape, "xfrm")
        offset, extent = find_named(place, "off"), find_named(place, "ext")
        if offset is not None and extent is not None:
            left, top = int(offset.get("x", "0")), int(offset.get("y", "0"))
            return left, top, left + int(extent.get("cx", "0")), top + int(extent.get("cy", "0"))
    return None


def _overlap(one: Bounds, other: Bounds) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
