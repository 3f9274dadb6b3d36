"""Preparation of an HTML tree: what its marks mean becomes text, and hidden text is removed.

Superscripts, notes, struck text, formulas, form values, expanded abbreviations and labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engines.parse.html_tree import (
    HtmlElement,
    StyleSheet,
    find_colors,
    is_invisible,
    is_struck,
    read_style_sheet,
)
from engines.parse.notices import Color, is_hidden_text_kept
from engines.parse.scripts import (
    format_note_mark,
    format_struck,
    format_subscript,
    format_superscript,
)
from schemas.values import Notice

BLOCK_TAGS = frozenset(
    """address article blockquote body center dd details div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 header hr html li main ol p pre section summary table
    ul""".split()  # noqa: SIM905
)
STRUCTURE_TAGS = BLOCK_TAGS | {"tbody", "td", "tfoot", "th", "thead", "tr"}
_UNREAD_TAGS = frozenset(
    """script style template noscript head title nav footer dialog button iframe""".split()  # noqa: SIM905
)
_NOTE_NAMES = re.compile(r"note|cite|reference|ftn|edn|\bfn\b|fn[-_:]?\d", re.I)
_NOTE_ROLES = frozenset({"doc-noteref", "doc-biblioref"})
_NOTE_LABEL = re.compile(r"[\[(]?(?:\d{1,3}|[a-z]{1,2}|[ivx]{1,5})[\])]?", re.I)
_UNITS = frozenset(
    """m cm mm km dm µm μm nm ft in yd mi s min h ms kg g w v a n pa j k mol l hz cd rad sr px
    sin cos tan log exp ln chi mc""".split()  # noqa: SIM905
)
_POWER_BASE = re.compile(r"(?:^|[^\d.,])10$|(?:[×xX·*]\s*10)$")
_SHORT_COUNT = re.compile(r"(?:^|[^\d.,])\d{1,2}\.?$|n\.$", re.I)
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_DECIMAL = re.compile(r"\d[.,]\d+$")
_PRICE = re.compile(r"[€$£¥]\s?\d{1,3}(?:[., ]?\d{3})*$")
_ELEMENT_SYMBOL = re.compile(r"[A-Z][a-z]?\b")
_SCRIPT_TAGS = {"super": "sup", "sub": "sub"}
_MAX_SHOWN = 60


@dataclass
class _Marker:
    sheet: StyleSheet
    note_labels: frozenset[str]
    hidden: list[str] = field(default_factory=list)
    preceding: str = ""
    """The text so far of the block that is visited."""
    is_inside_mark: bool = False
    """True inside struck text that one mark encloses."""
    following: list[HtmlElement | str] = field(default_factory=list)
    """The next sibling, if any."""

    def visit(
        self, element: HtmlElement, color: Color | None, background: Color | None, struck: bool
    ) -> None:
        kept: list[HtmlElement | str] = []
        for i, child in enumerate(element.children):
            self.following = element.children[i + 1 : i + 2]
            if isinstance(child, str):
                kept.append(format_struck(child) if struck else child)
                self._add_preceding(child)
                continue
            if child.tag in _UNREAD_TAGS:
                kept.append(child)
                continue
            style = self.sheet.find_declarations(child)
            child_colors = find_colors(style, color, background)
            # Colors hide the element's own text, so that they are compared where one is set.
            changes_color = child_colors != (color, background)
            is_hidden = "hidden" in child.attributes or is_invisible(
                style, *(child_colors if changes_color else (None, None))
            )
            # Readers of books show a hidden note where its mark is tapped.
            if is_hidden and "note" not in child.attributes.get("epub:type", ""):
                unseen = " ".join(_get_visible_text(child).split())
                if any(map(str.isalnum, unseen)):
                    self.hidden.append(unseen)
                if not is_hidden_text_kept():
                    continue
            if child.tag in STRUCTURE_TAGS or child.tag == "br":
                self.preceding = ""
            if child.tag in ("span", "font", "small"):
                child.tag = _SCRIPT_TAGS.get(style.get("vertical-align", ""), child.tag)
            child_struck = not self.is_inside_mark and is_struck(child, style)
            if (words := self._format_mark(child, element)) is not None:
                child = HtmlElement(
                    "span", {k: v for k, v in child.attributes.items() if k == "id"}
                )
                child.children = [format_struck(words) if struck or child_struck else words]
                self._add_preceding(words)
            elif child_struck and not struck and not _has_structure(child):
                # One mark around the whole, instead of one around each of its parts.
                self.is_inside_mark = True
                self.visit(child, *child_colors, False)
                self.is_inside_mark = False
                child.children = [format_struck(child.get_text())]
            else:
                self.visit(child, *child_colors, struck or child_struck)
            if child.tag in STRUCTURE_TAGS:
                self.preceding = ""
            kept.append(child)
        element.children = kept

    def _add_preceding(self, words: str) -> None:
        # Only its end is needed; the whole would take quadratic time.
        self.preceding = (self.preceding + words[-_MAX_SHOWN:])[-_MAX_SHOWN:]

    def _format_mark(self, element: HtmlElement, parent: HtmlElement) -> str | None:
        """Return the text that stands for an element, None if its children do."""
        attributes = element.attributes
        match element.tag:
            case "sup":
                return self.format_raised(element, parent)
            case "sub":
                return format_subscript(_get_visible_text(element))
            case "a" if attributes.get("role") in _NOTE_ROLES or self._is_note_link(element):
                return self._format_note(_get_visible_text(element))
            case "math":
                return f" {format_formula(element)} "
            case "abbr" if title := attributes.get("title", "").strip():
                words = element.get_text().strip()
                return f"{words} ({title})" if title.lower() != words.lower() else words
            case "form" if not _is_filled(element):
                return ""
            case "input":
                return _format_input(attributes)
            case "select":
                options = [inner for inner in element.iter_descendants() if inner.tag == "option"]
                chosen = [inner for inner in options if "selected" in inner.attributes]
                return f" {', '.join(inner.get_text().strip() for inner in chosen)} "
            case "textarea":
                return f" {element.get_text().strip()} "
            case "progress" | "meter" if value := attributes.get("value"):
                maximum = attributes.get("max", "1")
                return f" {element.get_text().strip() or f'{value} of {maximum}'} "
        label = attributes.get("aria-label", "").strip()
        # Stars and icons: the label is their only text.
        if (
            label
            and element.tag in ("span", "i", "div", "svg", "b", "em", "td")
            and attributes.get("aria-hidden") != "true"
            and not any(map(str.isalnum, element.get_text()))
        ):
            return f" {label} "
        return None

    def _is_note_link(self, element: HtmlElement) -> bool:
        """Return whether a link leads to a note of the page: its name says so, or its raised mark.

        A raised link to the same page is a note mark too; other links are words.
        """
        target = element.attributes.get("href", "")
        if "#" not in target or not _NOTE_LABEL.fullmatch(_get_visible_text(element).strip()):
            return False
        names = " ".join(
            (target.partition("#")[2], *(element.attributes.get(n, "") for n in ("class", "id")))
        )
        inner = [part.tag for part in element.iter_elements()]
        return "sup" in inner or _NOTE_NAMES.search(names) is not None

    def format_raised(self, element: HtmlElement, parent: HtmlElement) -> str:
        words = _get_visible_text(element).strip()
        inner = list(element.iter_descendants())
        names = f"{element.attributes.get('class', '')} {element.attributes.get('id', '')}"
        is_note = (
            any(part.tag == "a" and "#" in part.attributes.get("href", "") for part in inner)
            or (parent.tag == "a" and "#" in parent.attributes.get("href", ""))
            or element.attributes.get("role") in _NOTE_ROLES
            or _NOTE_NAMES.search(names) is not None
            or self._is_bare_note(words)
        )
        if is_note:
            return self._format_note(words)
        # Cents: €12 and a raised 99.
        is_price = len(words) == 2 and words.isdigit() and _PRICE.search(self.preceding)
        return f".{words}" if is_price else format_superscript(words)

    def _is_bare_note(self, words: str) -> bool:
        """Decide whether raised text without a link marks a note, by its base and the notes."""
        if re.search(r"\d{1,3}(?:\s*,\s*\d{1,3})+", words):
            return all(map(self._is_bare_note, map(str.strip, words.split(","))))
        label = words.strip("[]()")
        base = self.preceding.rstrip()
        if words[:1] == "[" and _NOTE_LABEL.fullmatch(words):
            return True
        if not _NOTE_LABEL.fullmatch(words) or (label.isalpha() and len(label) > 1):
            return label.lower() in self.note_labels and not label.isdigit()
        if not base:
            return True
        last_word = _LAST_WORD.search(base)
        if label.isalpha():
            if label.lower() in "oa" and _SHORT_COUNT.search(base):
                return False
            return label.lower() in self.note_labels or (label in "abcdef" and base[-1].isdigit())
        is_isotope = (
            self.preceding[-1:] in " (\n"
            and self.following
            and isinstance(self.following[0], str)
            and _ELEMENT_SYMBOL.match(self.following[0])
        )
        # A power: of ten, of a unit, of a variable.
        if (
            is_isotope
            or _POWER_BASE.search(base)
            or (
                last_word
                and self.preceding[-1:] == base[-1]
                and (last_word[0].lower() in _UNITS or len(last_word[0]) == 1)
            )
        ):
            return False
        if label in self.note_labels:
            return True
        # No number is raised to the power 1.
        if label == "1":
            return True
        # Integers and brackets are raised to powers, decimal and grouped numbers hardly ever.
        is_raised = base[-1] in ")]" or base[-1].isdigit()
        return not is_raised or _DECIMAL.search(base) is not None

    @staticmethod
    def _format_note(words: str) -> str:
        labels = [label for label in re.split(r"[\s,;]+", words.strip()) if label]
        return "".join(format_note_mark(label) for label in labels)


def _format_input(attributes: dict[str, str]) -> str:
    kind, value = attributes.get("type", "text").lower(), attributes.get("value", "").strip()
    if kind in ("checkbox", "radio"):
        return " [x] " if "checked" in attributes else " [ ] "
    unseen = ("hidden", "password", "submit", "button", "reset", "image", "file", "search")
    return "" if kind in unseen or not value else f" {value} "


def _is_filled(element: HtmlElement) -> bool:
    """Return whether a form holds values or text, other than a search or login form."""
    return any(
        inner.tag in ("p", "h1", "h2", "h3", "h4", "li", "td", "dd")
        or (inner.tag == "option" and "selected" in inner.attributes)
        or (inner.tag == "input" and _format_input(inner.attributes) not in ("", " [ ] "))
        or (inner.tag == "textarea" and bool(inner.get_text().strip()))
        for inner in element.iter_descendants()
    )


def _has_structure(element: HtmlElement) -> bool:
    return element.tag in STRUCTURE_TAGS - {"td", "th", "li", "p", "dd", "dt"} or any(
        inner.tag in STRUCTURE_TAGS or inner.tag in ("br", "img")
        for inner in element.iter_descendants()
    )


def _get_visible_text(element: HtmlElement) -> str:
    return "".join(
        child if isinstance(child, str) else _get_visible_text(child)
        for child in element.children
        if isinstance(child, str) or child.tag not in _UNREAD_TAGS
    )


def _find_note_labels(root: HtmlElement) -> frozenset[str]:
    """Return the labels at the beginning of notes: `<sup>1</sup> Restated.`, `[2] See …`."""
    labels = set()
    for element in root.iter_descendants():
        if element.tag not in ("p", "li", "div", "small", "td", "dd", "aside"):
            continue
        content = [part for part in element.children if not isinstance(part, str) or part.strip()]
        while content and isinstance(content[0], HtmlElement) and content[0].tag in ("small", "a"):
            content = content[0].children + content[1:]
        first = content[0] if content else ""
        if isinstance(first, HtmlElement) and first.tag == "sup":
            labels.add(first.get_text().strip().strip("[]()").lower())
        elif isinstance(first, str) and (
            match := re.match(r"\s*(?:\[(\w{1,3})\]|\((\w{1,3})\)|(\w{1,3})\)) \S", first)
        ):
            labels.add((match[1] or match[2] or match[3]).lower())
    return frozenset(labels)


def format_raised(words: str, preceding: str, following: str, note_labels: frozenset[str]) -> str:
    """Format raised text between other text of a page with these notes."""
    marker = _Marker(StyleSheet(), note_labels, preceding=preceding, following=[following])
    return marker.format_raised(HtmlElement("sup", {}, [words]), HtmlElement("p", {}))


def prepare_tree(root: HtmlElement, style_sheets: str = "") -> list[Notice]:
    """Turn marks into text and remove what no reader sees, in place; return warnings.

    `style_sheets` holds the rules of linked files.
    """
    sheet = read_style_sheet(root, style_sheets)
    marker = _Marker(sheet, _find_note_labels(root))
    marker.visit(root, None, sheet.background, False)
    if not marker.hidden:
        return []
    shown = "; ".join(words[:_MAX_SHOWN] for words in marker.hidden[:3])
    n_hidden = len(marker.hidden)
    action = "read" if is_hidden_text_kept() else "left out"
    detail = f"Text that readers cannot see was {action} in {n_hidden} places: {shown}"
    return [Notice(code="HIDDEN_TEXT", detail=detail)]


# MathML as linear text: `x = (a + b)/2`, `√(x)`, `Σ_(i=1)^n`; TeX annotations are kept as TeX.

_RELATIONS = re.compile(r"[=<>≤≥≠≈∼≡→←⇒⇔∈∝±+−–×·÷*]|-")
_INVISIBLE = dict.fromkeys(map(ord, "\u2061\u2062\u2063\u2064\u200b"))
_FRACTIONS = {("1", "2"): "½", ("1", "3"): "⅓", ("1", "4"): "¼", ("3", "4"): "¾", ("2", "3"): "⅔"}


def format_formula(element: HtmlElement) -> str:
    """Format a `math` element on one line."""
    for inner in element.iter_descendants():
        if inner.tag == "annotation" and "tex" in inner.attributes.get("encoding", "").lower():
            return f"${' '.join(inner.get_text().split())}$"
    return " ".join(_format(element).split()) or element.attributes.get("alttext", "")


def _format(element: HtmlElement | str) -> str:
    if isinstance(element, str):
        return " ".join(element.translate(_INVISIBLE).split())
    parts = [part for part in element.iter_elements() if not part.tag.startswith("annotation")]
    words = [_format(part) for part in parts]
    match element.tag, words:
        case "mfrac", [above, below]:
            return _FRACTIONS.get((above, below), f"{_enclose(above)}/{_enclose(below)}")
        case "msup" | "mover", [base, above]:
            return f"{_enclose(base)}{format_superscript(above)}"
        case "msub" | "munder", [base, below]:
            return f"{_enclose(base)}{format_subscript(below)}"
        case "msubsup" | "munderover", [base, below, above]:
            return f"{_enclose(base)}{format_subscript(below)}{format_superscript(above)}"
        case "msqrt", _:
            return f"√{_enclose(_join(words))}"
        case "mroot", [base, index]:
            return f"{format_superscript(index)}√{_enclose(base)}"
        case "mtable", _:
            return f"[{'; '.join(words)}]"
        case "mtr" | "mlabeledtr", _:
            return ", ".join(words)
        case "mfenced", _:
            opening = element.attributes.get("open", "(")
            return f"{opening}{', '.join(words)}{element.attributes.get('close', ')')}"
        case "mo", _ if _RELATIONS.fullmatch(sign := _join_text(element)):
            return f" {sign} "
        case "mspace", _:
            return " "
        case _ if words:
            return _join(words)
        case _:
            return _join_text(element)


def _join_text(element: HtmlElement) -> str:
    return " ".join(element.get_text().translate(_INVISIBLE).split())


def _join(words: list[str]) -> str:
    """Join the parts of a row; numbers and names stay apart, so that ½ b is not ½b or 12."""
    row = ""
    for part in words:
        is_apart = row[-1:].isalnum() and part[:1].isalnum()
        row += f" {part}" if is_apart else part
    return row


def _enclose(words: str) -> str:
    words = words.strip()
    is_single = words.isalnum() or re.fullmatch(r"[\d.,]+|\([^()]*\)|.", words) is not None
    return words if is_single else f"({words})"
