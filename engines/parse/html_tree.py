"""HTML as a small tree, by the standard library's tokenizer and rules for implied end tags."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from engines.parse.notices import WHITE, Color, is_unseen

_VOID_TAGS = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_CLOSED_TAGS = {
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "tr": {"tr", "td", "th"},
    "td": {"td", "th"},
    "th": {"td", "th"},
    "option": {"option"},
    "thead": {"thead", "tbody", "tfoot", "tr", "td", "th"},
    "tbody": {"thead", "tbody", "tfoot", "tr", "td", "th"},
    "tfoot": {"thead", "tbody", "tfoot", "tr", "td", "th"},
}
"""Open elements that a start tag closes, because HTML permits omitting their end tags."""
_PARAGRAPH_ENDING_TAGS = frozenset(
    """address article aside blockquote details div dl fieldset figcaption figure footer form h1
    h2 h3 h4 h5 h6 header hr main nav ol p pre section table ul""".split()  # noqa: SIM905
)
_BOUNDARY_TAGS = frozenset({"table", "ul", "ol", "dl"})
"""A start tag inside one of these closes no element outside of it."""
_PAGE_TAGS = frozenset({"html", "body", "main", "section", "article", "div"})
_MAX_DEPTH = 150


@dataclass(slots=True)
class HtmlElement:
    tag: str
    attributes: dict[str, str]
    children: list[HtmlElement | str] = field(default_factory=list)

    def iter_elements(self) -> Iterator[HtmlElement]:
        return (child for child in self.children if isinstance(child, HtmlElement))

    def iter_descendants(self) -> Iterator[HtmlElement]:
        """Yield all descendants depth first, in document order."""
        stack = list(self.iter_elements())[::-1]
        while stack:
            element = stack.pop()
            yield element
            stack.extend(list(element.iter_elements())[::-1])

    def get_text(self) -> str:
        return "".join(
            child if isinstance(child, str) else child.get_text() for child in self.children
        )


class _TreeBuilder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = HtmlElement("#document", {})
        self.open_elements = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._close_implied(tag)
        element = HtmlElement(tag, {name: value or "" for name, value in attrs})
        self.open_elements[-1].children.append(element)
        if tag not in _VOID_TAGS and len(self.open_elements) < _MAX_DEPTH:
            self.open_elements.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        # HTML ignores the slash in `<p/>` and the like: the element stays open.
        if tag not in _VOID_TAGS and tag not in ("p", "div", "span", "a", "li", "td", "th", "tr"):
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        for i in range(len(self.open_elements) - 1, 0, -1):
            if self.open_elements[i].tag == tag:
                del self.open_elements[i:]
                return
            # A stray end tag in a table must not close the elements around the table.
            if self.open_elements[i].tag == "table" and tag not in _PAGE_TAGS:
                return

    def handle_data(self, data: str) -> None:
        self.open_elements[-1].children.append(data)

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        # Skip `<![…]>` regardless of its name: the standard library raises on names it does not
        # know.
        return self.rawdata.find("]>", i) + 2

    def _close_implied(self, tag: str) -> None:
        if tag in _PARAGRAPH_ENDING_TAGS and self.open_elements[-1].tag == "p":
            self.open_elements.pop()
        closed_tags = _CLOSED_TAGS.get(tag, set())
        for i in range(len(self.open_elements) - 1, 0, -1):
            if self.open_elements[i].tag in closed_tags:
                del self.open_elements[i:]
                # A row or a table section may close several levels: continue outward.
                if tag not in ("tr", "thead", "tbody", "tfoot"):
                    return
            elif self.open_elements[i].tag in _BOUNDARY_TAGS:
                return


_COMMENT_ENDS = re.compile(r"--\s*+>")


def _escape_unclosed_markup(source: str) -> str:
    """Escape unclosed markup, for which the tokenizer needs quadratic time (CVE-2025-6069)."""
    comments_end = max((match.end() for match in _COMMENT_ENDS.finditer(source)), default=0)
    source = source[:comments_end] + source[comments_end:].replace("<!--", "&lt;!--")
    for opening, closing in (("<![", "]>"), ("<", ">")):
        end = source.rfind(closing) + 1
        source = source[:end] + source[end:].replace(opening, f"&lt;{opening[1:]}")
    return source


def parse_html(source: str) -> HtmlElement:
    """Parse HTML without ever raising on bad markup; nesting deeper than 150 is flattened."""
    builder = _TreeBuilder()
    builder.feed(_escape_unclosed_markup(source))
    builder.close()
    return builder.root


# Styles that change what a reader sees: hidden and struck text, by attribute or simple rule.

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
