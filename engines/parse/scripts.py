"""Superscript, subscript and struck text as Markdown, in which a mark never joins a number."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import pairwise

_SUPERSCRIPTS = str.maketrans("0123456789+-−–=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻⁼⁽⁾ⁿⁱ")
_SUBSCRIPTS = str.maketrans("0123456789+-−–=()", "₀₁₂₃₄₅₆₇₈₉₊₋₋₋₌₍₎")
_WRITTEN_RAISED = {"TM": "™", "SM": "℠", "R": "®", "(R)": "®", "o": "º", "a": "ª"}
_ORDINAL = re.compile(r"(?:st|nd|rd|th|er|ère|re|e|ème|eme|os|as|o|a)\.?", re.I)
"""Endings of ordinals and abbreviations, raised by habit only: 4th, 1er, n.os."""


def format_superscript(text: str) -> str:
    """Format raised text: `²`, `⁻³`, `th`, `™`, else `^…`."""
    return _format_script(text, _SUPERSCRIPTS, "^")


def format_subscript(text: str) -> str:
    """Format lowered text: `₂`, else `_…`."""
    return _format_script(text, _SUBSCRIPTS, "_")


def _format_script(text: str, table: dict[int, int], sign: str) -> str:
    words = " ".join(text.split())
    return _keep_spaces_around(text, _format_words(words, table, sign)) if words else text


def _format_words(words: str, table: dict[int, int], sign: str) -> str:
    if sign == "^" and (words in _WRITTEN_RAISED or _ORDINAL.fullmatch(words)):
        return _WRITTEN_RAISED.get(words, words)
    # A mark in parentheses, such as (a), joins no number.
    if re.fullmatch(r"\([^\d()]+\)", words):
        return words
    compact = words.replace(" ", "")
    if all(ord(character) in table for character in compact):
        return compact.translate(table)
    # A mark such as `*` that no number can absorb, or characters that are raised already.
    if not any(
        character.isalnum() and not unicodedata.decomposition(character).startswith("<su")
        for character in words
    ):
        return words
    return f"{sign}{words}" if words.isalnum() else f"{sign}({words})"


def format_note_mark(text: str) -> str:
    """Format the mark of a footnote: `[^1]`, also from `1`, `[1]` or `(1)`."""
    words = " ".join(text.split()).strip("[](){}^ ").rstrip(".")
    return f"[^{words}]" if words else ""


def format_struck(text: str) -> str:
    """Mark struck text with `~~`, inside the spaces around it; a struck mark stays single."""
    words = text.strip()
    if not words:
        return text
    return _keep_spaces_around(text, f"~~{words.replace('~~', '')}~~")


def apply_marks(text: str, marks: Collection[str]) -> str:
    """Format text that is `superscript`, `subscript` or `struck`."""
    if "superscript" in marks:
        text = format_superscript(text)
    elif "subscript" in marks:
        text = format_subscript(text)
    return format_struck(text) if "struck" in marks else text


def apply_run_marks(text: str, runs: Sequence[tuple[int, Collection[str]]]) -> str:
    """Format a text by its runs: the start of each, and its marks. Text before them has none."""
    starts = [0, *(start for start, _ in runs), len(text)]
    pieces = [text[start:end] for start, end in pairwise(starts)]
    all_marks: list[Collection[str]] = [(), *(marks for _, marks in runs)]
    return "".join(map(apply_marks, pieces, all_marks))


def _keep_spaces_around(text: str, formatted: str) -> str:
    return f"{text[: len(text) - len(text.lstrip())]}{formatted}{text[len(text.rstrip()) :]}"
