"""Text metrics: error rates by Levenshtein distance, word overlap, cell recall.

Texts are compared after Unicode NFKC normalization, without Markdown syntax (which is not on the
page) and with single spaces.
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
    """Return the words of a Markdown text as they appear on the page, separated by single spaces."""
    text = _DELIMITER_ROW.sub(" ", _TAG.sub(" ", _LINK.sub(r"\1", text)))
    text = _LINE_MARK.sub(" ", text).replace("\\|", "\0").replace("|", " ").replace("\0", "|")
    text = re.sub(
        r"\\([\\`*_{}\[\]()#+\-.!<>~$&])", r"\1", re.sub(r"(?<!\\)(?:\*{1,3}|__|`+|~~)", "", text)
    )
    return normalize_text(html.unescape(text))


def normalize_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def character_error_rate(truth: str, text: str) -> float:
    """Return the edits per character of the truth. Exceeds 1 for texts that are much too long.

    Returns 0 if both texts are empty, and 1 if only the truth is.
    """
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
    """Return the harmonic mean of precision and recall over bags of words. Word order is ignored."""
    expected, actual = Counter(tokenize(truth)), Counter(tokenize(text))
    n_shared = (expected & actual).total()
    return 2 * n_shared / (expected.total() + actual.total()) if expected or actual else 1.0


def cell_recall(truth: Sequence[str], cells: Sequence[str]) -> float:
    """Return the share of the non-empty true cells that occur among the cells, each matched once.

    Case, white space and Markdown syntax are ignored.
    """
    expected = Counter(key for cell in truth if (key := normalize_cell(cell)))
    actual = Counter(key for cell in cells if (key := normalize_cell(cell)))
    return (expected & actual).total() / expected.total() if expected else 1.0


def normalize_cell(text: str) -> str:
    return "".join(strip_markdown(text).split()).lower()
