"""HTML as a small tree, by the standard library's tokenizer and rules for implied end tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID_TAGS = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
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
            if self.open_elements[i].tag == "table" and tag not in (
                "div",
                "body",
                "html",
                "section",
                "main",
                "article",
            ):
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
