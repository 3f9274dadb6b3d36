"""Headings: what a passage is called says nothing about what was asked, however many words it shares with the question.

The chunker's own headings are marked. Others come as plain lines, from scans and plain texts, and are told by their form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from retrieval.answer.asked_for import ValueKind, find_value
from retrieval.words import words

MARKED = re.compile(r"[ \t]*#{1,6}[ \t]+(?P<words>[^\n]*\S)")
LONGEST = 10
"""Words of a line that may be a heading by its form."""
_CLOSED = re.compile(r"[.!?…:;,|][\"'”’»)\]*_`]*$")
_STATEMENT = re.compile(r"[:=|]|,\s")
_VALUES: Sequence[ValueKind] = ("money", "percentage", "date", "contact")


def marked_headings(text: str) -> Iterator[tuple[int, int]]:
    """Places of the words of headings that Markdown marks."""
    yield from (match.span("words") for line in re.finditer(r"[^\n]+", text) if (match := MARKED.match(text, line.start(), line.end())))


def is_name(text: str, names: Iterable[str]) -> bool:
    """Whether the text is one of the names (title, parts of the section's path) and nothing more; numbering aside."""
    bare = _bare(text)
    return bool(bare) and any(bare == _bare(name) for name in names)


def looks_like_a_heading(text: str) -> bool:
    """One short line that no punctuation closes and that says no value: of a line with more text below it, that it is a heading."""
    line = text.strip()
    if "\n" in line or not 0 < len(line.split()) <= LONGEST or _CLOSED.search(line) or _STATEMENT.search(line):
        return False
    return not any(find_value(kind, line, "") for kind in _VALUES)


def _bare(text: str) -> list[str]:
    found = words(text)
    return found[1:] if len(found) > 1 and found[0].isdigit() else found
