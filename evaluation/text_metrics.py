"""How much of a text was read: error rates by Levenshtein distance, words, table cells.

Texts are compared as words in a row: Unicode NFKC, white space closed up, Markdown's own marks taken out, since they are not on the page.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

_LINK = re.compile(r"!?\[([^\[\]]*+)\]\([^\[)]*+\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--(?:(?!<!--).)*?-->", re.DOTALL)
_DELIMITER_ROW = re.compile(r"^(?=[^\n]*?--)(?:[^\S\n]|[:|-])++$", re.MULTILINE)
_LINE_MARK = re.compile(r"^[^\S\n]*+(?:#{1,6}\s++|>\s?|[-*+]\s++(?=\S)|```.*$)", re.MULTILINE)
_WORD = re.compile(r"\w+")


def strip_markdown(text: str) -> str:
    """The words of a Markdown text as they would stand on the page, one space between."""
    text = _DELIMITER_ROW.sub(" ", _TAG.sub(" ", _LINK.sub(r"\1", text)))
    text = _LINE_MARK.sub(" ", text).replace("\\|", "\0").replace("|", " ").replace("\0", "|")
    text = re.sub(r"\\([\\`*_{}\[\]()#+\-.!<>~$&])", r"\1", re.sub(r"(?<!\\)(?:\*{1,3}|__|`+|~~)", "", text))
    return normalize_text(html.unescape(text))


def normalize_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def character_error_rate(truth: str, text: str) -> float:
    """Edits a character of the truth; above 1 for a text that is much too long. 0 for two empty texts, 1 for an empty truth and some text."""
    return _error_rate(truth, text)


def word_error_rate(truth: str, text: str) -> float:
    return _error_rate(truth.split(), text.split())


def _error_rate(truth: Sequence[str], text: Sequence[str]) -> float:
    if not truth:
        return float(bool(text))
    return Levenshtein.distance(truth, text) / len(truth)


def tokenize(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def word_f1(truth: str, text: str) -> float:
    """Harmonic mean of precision and recall over the two bags of words; order does not count."""
    expected, actual = Counter(tokenize(truth)), Counter(tokenize(text))
    n_shared = (expected & actual).total()
    return 2 * n_shared / (expected.total() + actual.total()) if expected or actual else 1.0


def cell_recall(truth: Sequence[str], cells: Sequence[str]) -> float:
    """Share of the true cells (those with text) whose text is a cell's text; each found cell serves once. Case, white space and Markdown's marks do not count."""
    expected = Counter(key for cell in truth if (key := normalize_cell(cell)))
    actual = Counter(key for cell in cells if (key := normalize_cell(cell)))
    return (expected & actual).total() / expected.total() if expected else 1.0


def normalize_cell(text: str) -> str:
    return "".join(strip_markdown(text).split()).lower()
