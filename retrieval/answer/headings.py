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
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_VALUES: Sequence[ValueKind] = ("money", "percentage", "date", "contact")


def marked_headings(text: str) -> Iterator[tuple[int, int]]:
    """Places of the words of headings that Markdown marks."""
    yield from (match.span("words") for line in re.finditer(r"[^\n]+", text) if (match := MARKED.match(text, line.start(), line.end())))


def section_at(text: str, section: str, offset: int) -> str:
    """Return the heading path that holds at `offset` of a passage whose own path is `section`: a short document is one passage with several headings."""
    path: list[tuple[int, str]] = []
    fence = ""
    for line in re.finditer(r"[^\n]+", text[:offset]):
        mark = _FENCE.match(line.group())
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and (found := MARKED.match(line.group())):
            level = len(line.group().split(None, 1)[0])
            path = [(other, name) for other, name in path if other < level] + [(level, " ".join(found["words"].strip("# ").split()))]
    names = [name for _, name in path]
    above = section.split(" > ") if section else []
    if names and names[0] in above:
        above = above[: above.index(names[0])]
    return " > ".join([*above, *names])


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
