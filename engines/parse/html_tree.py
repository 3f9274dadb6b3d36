"""HTML as a small tree, by the standard library's tokenizer and the few rules of implied end tags that matter for text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())  # noqa: SIM905
_CLOSES = {
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "tr": {"tr", "td", "th"}, "td": {"td", "th"}, "th": {"td", "th"}, "option": {"option"},
    "thead": {"thead", "tbody", "tfoot", "tr", "td", "th"}, "tbody": {"thead", "tbody", "tfoot", "tr", "td", "th"},
    "tfoot": {"thead", "tbody", "tfoot", "tr", "td", "th"},
}  # fmt: skip
_ENDS_PARAGRAPH = frozenset(
    "address article aside blockquote details div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr main nav ol p pre section table ul".split()  # noqa: SIM905
)
_WALLS = frozenset({"table", "ul", "ol", "dl"})
_DEEPEST = 150


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def elements(self) -> Iterator[Element]:
        return (child for child in self.children if isinstance(child, Element))

    def descendants(self) -> Iterator[Element]:
        """Depth first, in document order, without recursion."""
        waiting = list(self.elements())[::-1]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(list(element.elements())[::-1])

    def words(self) -> str:
        return "".join(child if isinstance(child, str) else child.words() for child in self.children)


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("#document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._imply_ends(tag)
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID and len(self.open) < _DEEPEST:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID and tag not in ("p", "div", "span", "a", "li", "td", "th", "tr"):
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        for i in range(len(self.open) - 1, 0, -1):
            if self.open[i].tag == tag:
                del self.open[i:]
                return
            if self.open[i].tag == "table" and tag not in ("div", "body", "html", "section", "main", "article"):
                return

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Skip `<![…]>`, whatever its name: the standard library fails on names it does not know."""
        return self.rawdata.find("]>", i) + 2

    def _imply_ends(self, tag: str) -> None:
        if tag in _ENDS_PARAGRAPH and self.open[-1].tag == "p":
            self.open.pop()
        closes = _CLOSES.get(tag, set())
        for i in range(len(self.open) - 1, 0, -1):
            if self.open[i].tag in closes:
                del self.open[i:]
                if tag not in ("tr", "thead", "tbody", "tfoot"):
                    return
            elif self.open[i].tag in _WALLS:
                return


_COMMENT_ENDS = re.compile(r"--\s*+>")


def _close_markup(source: str) -> str:
    """Show markup that nothing closes as text. The tokenizer would look for its end from each opening anew, in quadratic time (CVE-2025-6069)."""
    comments_end = max((match.end() for match in _COMMENT_ENDS.finditer(source)), default=0)
    source = source[:comments_end] + source[comments_end:].replace("<!--", "&lt;!--")
    for opening, closing in (("<![", "]>"), ("<", ">")):
        end = source.rfind(closing) + 1
        source = source[:end] + source[end:].replace(opening, f"&lt;{opening[1:]}")
    return source


def parse(source: str) -> Element:
    """Never raises on bad markup; nesting deeper than 150 is flattened."""
    builder = _Builder()
    builder.feed(_close_markup(source))
    builder.close()
    return builder.root
