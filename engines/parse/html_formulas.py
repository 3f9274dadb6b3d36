"""MathML as linear text: `x = (a + b)/2`, `√(x)`, `Σ_(i=1)^n`; TeX annotations are kept as TeX."""

from __future__ import annotations

import re

from engines.parse.html_tree import HtmlElement
from engines.parse.scripts import format_subscript, format_superscript

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
