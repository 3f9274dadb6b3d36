"""Recognize headings, which are no answers however many words they share with the query.

The chunker marks its own headings. Others are plain lines, from scans and plain texts, recognized
by form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from retrieval.answer.answer_type import AnswerType, find_value
from retrieval.words import split_words

MARKDOWN_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+(?P<words>[^\n]*\S)")
# Longest unmarked line that may be a heading.
MAX_HEADING_WORDS = 10
_CLOSING_PUNCTUATION = re.compile(r"[.!?…:;,|][\"'”’»)\]*_`]*$")
_STATEMENT = re.compile(r"[:=|]|,\s")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_VALUE_TYPES: Sequence[AnswerType] = ("money", "percentage", "date", "contact")


def find_marked_headings(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the words of Markdown headings."""
    yield from (
        match.span("words")
        for line in re.finditer(r"[^\n]+", text)
        if (match := MARKDOWN_HEADING.match(text, line.start(), line.end()))
    )


def resolve_section(text: str, section: str, offset: int) -> str:
    """Return the heading path at `offset` of a passage whose own path is `section`.

    A short document is one passage with several headings.
    """
    path: list[tuple[int, str]] = []
    fence = ""
    for line in re.finditer(r"[^\n]+", text[:offset]):
        fence_match = _FENCE.match(line.group())
        if fence_match and (not fence or fence_match[1].startswith(fence)):
            fence = "" if fence else fence_match[1]
        elif not fence and (heading := MARKDOWN_HEADING.match(line.group())):
            level = len(line.group().split(None, 1)[0])
            path = [(other_level, name) for other_level, name in path if other_level < level] + [
                (level, " ".join(heading["words"].strip("# ").split()))
            ]
    names = [name for _, name in path]
    outer_sections = section.split(" > ") if section else []
    if names and names[0] in outer_sections:
        outer_sections = outer_sections[: outer_sections.index(names[0])]
    return " > ".join([*outer_sections, *names])


def is_heading_name(text: str, names: Iterable[str]) -> bool:
    """True when the text is one of the names (title, parts of the section path), numbering aside."""
    text_words = _strip_numbering(text)
    return bool(text_words) and any(text_words == _strip_numbering(name) for name in names)


def is_heading_like(text: str) -> bool:
    """True for one short line without closing punctuation and without a value."""
    line = text.strip()
    if (
        "\n" in line
        or not 0 < len(line.split()) <= MAX_HEADING_WORDS
        or _CLOSING_PUNCTUATION.search(line)
        or _STATEMENT.search(line)
    ):
        return False
    return not any(find_value(kind, line, "") for kind in _VALUE_TYPES)


def _strip_numbering(text: str) -> list[str]:
    text_words = split_words(text)
    return text_words[1:] if len(text_words) > 1 and text_words[0].isdigit() else text_words
