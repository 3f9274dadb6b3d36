"""Colors and places of PPTX shapes, to tell text that a reader cannot see.

Source: ECMA-376 part 1, 19.3.1 (slides), 20.1.2.3 (colors), 20.1.8 (fills).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engines.parse.ooxml import Package
from engines.parse.visibility import WHITE, Bounds, Color, is_off_page, is_unseen, parse_color
from engines.parse.xml_parts import Element, find_named, iter_named, strip_namespace

_FILLS = ("solidFill", "gradFill", "blipFill", "pattFill", "grpFill", "noFill")
_SHAPES = ("sp", "pic", "graphicFrame", "grpSp", "cxnSp")
_HUNDREDTHS, _OPAQUE = 100, 100_000


@dataclass(frozen=True, slots=True)
class SlideView:
    """Background of a slide's texts: its own color and the areas painted on it."""

    scheme: dict[str, Color | None]
    ground: Color | None
    painted: tuple[tuple[Element, Bounds | None], ...]
    width: float
    height: float

    def is_off_slide(self, shape: Element) -> bool:
        bounds = _find_bounds(shape)
        return bounds is not None and is_off_page(bounds, self.width, self.height)

    def find_grounds(self, tree: Element) -> dict[int, Color | None]:
        """Return the color behind each paragraph, by its id."""
        grounds: dict[int, Color | None] = {}
        for shape in iter_named(tree, "sp"):
            ground = self._find_ground(shape)
            grounds |= {id(paragraph): ground for paragraph in iter_named(shape, "p")}
        for cell in iter_named(tree, "tc"):
            # Cells without a fill of their own have that of the table's style.
            fill = _find_fill(find_named(cell, "tcPr"))
            ground = self.read_color(fill)[0] if fill is not None else None
            grounds |= {id(paragraph): ground for paragraph in iter_named(cell, "p")}
        return grounds

    def hides(self, run: Element, ground: Color | None) -> bool:
        properties = find_named(run, "rPr")
        if properties is None:
            return False
        color, opacity = self.read_color(_find_fill(properties))
        size = properties.get("sz", "")
        points = int(size) / _HUNDREDTHS if size.isdigit() else None
        return is_unseen(color, ground, points, opacity)

    def _find_ground(self, shape: Element) -> Color | None:
        fill = _find_fill(find_named(shape, "spPr"))
        if fill is not None and strip_namespace(fill.tag) != "noFill":
            return self.read_color(fill)[0]
        reference = find_named(shape, "style", "fillRef")
        if fill is None and reference is not None and reference.get("idx", "0") != "0":
            return self.read_color(reference)[0]
        bounds = _find_bounds(shape)
        is_painted = any(
            other is not shape and (bounds is None or area is None or _overlap(bounds, area))
            for other, area in self.painted
        )
        return None if is_painted else self.ground

    def read_color(self, fill: Element | None) -> tuple[Color | None, float]:
        """Return a fill's color, None if it is no plain one, and its opacity."""
        if fill is None or strip_namespace(fill.tag) not in ("solidFill", "fillRef", "bgRef"):
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
    chain = [root, *_list_masters(package, part)]
    scheme = _read_scheme(package, part)
    view = SlideView(scheme, None, (), width, height)
    ground: Color | None = WHITE
    for element in chain:
        background = find_named(element, "cSld", "bg")
        if background is not None:
            fill = _find_fill(find_named(background, "bgPr"))
            fill = fill if fill is not None else find_named(background, "bgRef")
            ground, _ = view.read_color(fill)
            break
    painted = [
        (shape, _find_bounds(shape))
        for depth, element in enumerate(chain)
        for shape in _iter_shapes(element)
        if _is_painted(shape)
        # The texts of a layout or master are placeholders that the slide replaces.
        and not (depth and find_named(shape, "nvSpPr", "nvPr", "ph") is not None)
    ]
    return SlideView(scheme, ground, tuple(painted), width, height)


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


def _read_scheme(package: Package, part: str) -> dict[str, Color | None]:
    """Return the theme's colors by the names that slides use, such as bg1."""
    master = _find_related(package, _find_related(package, part, "slideLayout"), "slideMaster")
    theme = _find_related(package, master, "theme") if master else ""
    if not theme:
        return {}
    colors: dict[str, Color | None] = {}
    for scheme in iter_named(package.load(theme), "clrScheme"):
        for element in scheme:
            for color in element:
                value = color.get("lastClr") or color.get("val")
                colors[strip_namespace(element.tag)] = parse_color(value)
    names = find_named(package.load(master), "clrMap")
    mapped = dict(names.attrib) if names is not None else {}
    return colors | {name: colors.get(target) for name, target in mapped.items()}


def _iter_shapes(root: Element) -> Iterator[Element]:
    tree = find_named(root, "cSld", "spTree")
    if tree is not None:
        yield from iter_named(tree, "sp", "pic")


def _is_painted(shape: Element) -> bool:
    if strip_namespace(shape.tag) == "pic":
        return True
    fill = _find_fill(find_named(shape, "spPr"))
    reference = find_named(shape, "style", "fillRef")
    has_style_fill = reference is not None and reference.get("idx", "0") != "0"
    return strip_namespace(fill.tag) != "noFill" if fill is not None else has_style_fill


def _find_fill(properties: Element | None) -> Element | None:
    return (
        next((child for child in properties if strip_namespace(child.tag) in _FILLS), None)
        if properties is not None
        else None
    )


def _find_bounds(shape: Element) -> Bounds | None:
    place = find_named(shape, "spPr", "xfrm")
    place = place if place is not None else find_named(shape, "xfrm")
    offset, extent = find_named(place, "off"), find_named(place, "ext")
    if offset is None or extent is None:
        return None
    left, top = int(offset.get("x", "0")), int(offset.get("y", "0"))
    return left, top, left + int(extent.get("cx", "0")), top + int(extent.get("cy", "0"))


def _overlap(one: Bounds, other: Bounds) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
