"""Styles that change what a reader sees: hidden and struck text, by attribute or simple rule."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from engines.parse.html_tree import HtmlElement
from engines.parse.visibility import WHITE, Color, is_unseen

Declarations = dict[str, str]
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.S)
_SIMPLE_SELECTOR = re.compile(r"([a-z][a-z0-9]*|\*)?(?:([.#])([\w-]+))?", re.I)
_SIZES = ("height", "max-height", "width", "max-width")
_ZERO = re.compile(r"[+-]?0*\.?0*(?:[a-z]+|%)?")
_FAR_OFF = re.compile(r"-\d{3,}(?:\.\d+)?(?:px|em|rem|%|vw)")
_CHANNELS = re.compile(r"rgba?\(([\d.]+)[\s,]+([\d.]+)[\s,]+([\d.]+)(?:[\s,/]+([\d.]+)(%?))?\)")
_CLEAR = re.compile(
    r"transparent|#.{3}0|#.{6}00|(?:rgb|hsl)a?\((?:[^,]+(?:,[^,]+){2},|[^/]+/)\s*[0.]+%?\s*\)"
)
_NAMED_COLORS = {
    "white": (255, 255, 255), "black": (0, 0, 0), "red": (255, 0, 0), "yellow": (255, 255, 0),
    "snow": (255, 250, 250), "ivory": (255, 255, 240), "whitesmoke": (245, 245, 245),
    "ghostwhite": (248, 248, 255), "floralwhite": (255, 250, 240),
}  # fmt: skip


@dataclass
class StyleSheet:
    """Rules of the page's `style` elements that name a tag, a class or an id alone."""

    rules: dict[str, Declarations] = field(default_factory=lambda: defaultdict(dict))
    background: Color | None = WHITE
    """Background of the page; None if a linked style sheet, which is not read, may set it."""

    def find_declarations(self, element: HtmlElement) -> Declarations:
        """Return the declarations for an element; its own `style` wins."""
        inline = _parse_declarations(element.attributes.get("style", ""))
        if not self.rules:
            return inline
        found: Declarations = {}
        names = [f".{name}" for name in element.attributes.get("class", "").split()]
        names += [f"#{element.attributes['id']}"] if "id" in element.attributes else []
        for key in ("*", element.tag, *names, *(f"{element.tag}{name}" for name in names)):
            found |= self.rules.get(key, {})
        return found | inline


def read_style_sheet(root: HtmlElement, linked: str = "") -> StyleSheet:
    """Read the rules of the page, and those of `linked` style sheets."""
    sheet = StyleSheet()
    elements = list(root.iter_descendants())
    sources = [element.get_text() for element in elements if element.tag == "style"]
    for source in [linked, *sources]:
        for selectors, body in _iter_rules(source):
            declarations = _parse_declarations(body)
            for selector in selectors.split(","):
                if _SIMPLE_SELECTOR.fullmatch(name := selector.strip()):
                    sheet.rules[name].update(declarations)
                elif any(key.startswith("background") for key in declarations):
                    sheet.background = None
    if not linked and any(map(_links_style_sheet, elements)):
        sheet.background = None
    return sheet


def _links_style_sheet(element: HtmlElement) -> bool:
    return element.tag == "link" and "stylesheet" in element.attributes.get("rel", "").lower()


def is_invisible(style: Declarations, color: Color | None, background: Color | None) -> bool:
    """Return whether a reader sees nothing of an element with this style and these colors."""
    return (
        style.get("display") == "none"
        or style.get("visibility") in ("hidden", "collapse")
        or any(_ZERO.fullmatch(style.get(name, "1")) for name in ("font-size", "opacity"))
        or (
            style.get("overflow") == "hidden"
            and any(_ZERO.fullmatch(style.get(name, "1")) for name in _SIZES)
        )
        or any(_FAR_OFF.match(style.get(name, "")) for name in ("left", "top", "text-indent"))
        or "scale(0)" in style.get("transform", "")
        or is_unseen(color, background)
    )


def is_struck(element: HtmlElement, style: Declarations) -> bool:
    decoration = style.get("text-decoration", "") + style.get("text-decoration-line", "")
    return element.tag in ("del", "s", "strike") or "line-through" in decoration


def find_colors(
    style: Declarations, color: Color | None, background: Color | None
) -> tuple[Color | None, Color | None]:
    """Return the text and background colors, inherited unless set; None if unknown."""
    if "color" in style:
        is_clear = _CLEAR.fullmatch(style["color"])
        color = background if is_clear else _parse_color(style["color"])
    if "background-image" in style:
        background = None
    for name in ("background", "background-color"):
        if (value := style.get(name)) and value not in ("none", "transparent", "inherit"):
            background = _parse_color(value)
    return color, background


def _iter_rules(source: str) -> list[tuple[str, str]]:
    """Return the rules outside of `@media` and other conditions, which need not hold."""
    rules, depth, prelude, is_conditional = [], 0, "", False
    pieces = re.split("([{}])", _COMMENT.sub("", source))
    for text, brace in zip(pieces[::2], pieces[1::2], strict=False):
        words = text.strip()
        if brace == "{":
            depth += 1
            is_conditional = is_conditional or words.startswith("@")
            prelude = words.rpartition(";")[2].strip()
        else:
            if depth == 1 and not is_conditional:
                rules.append((prelude, words))
            depth = max(0, depth - 1)
            is_conditional = is_conditional and depth > 0
    return rules


def _parse_declarations(source: str) -> Declarations:
    pairs = (part.partition(":") for part in source.lower().split(";") if ":" in part)
    return {name.strip(): value.replace("!important", "").strip() for name, _, value in pairs}


def _parse_color(value: str) -> Color | None:
    if value in _NAMED_COLORS:
        return _NAMED_COLORS[value]
    if match := re.fullmatch(r"#([0-9a-f]{3}|[0-9a-f]{6})", value):
        digits = match[1] if len(match[1]) == 6 else "".join(digit * 2 for digit in match[1])
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)
    if match := _CHANNELS.fullmatch(value):
        red, green, blue = (min(255, int(float(channel))) for channel in match.groups()[:3])
        # A translucent color depends on what is below.
        return (red, green, blue) if match[4] is None or float(match[4]) >= 1 else None
    return None
