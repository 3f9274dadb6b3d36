"""Refusals and notices that format readers share.

Refused are damaged or encrypted files, and too many pages or characters. Notices name what was not
read: embedded files, and text that cannot be seen (tiny letters, no contrast, or off the page). One
rule says so for every format; a color that is not known hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from schemas.errors import LimitExceeded, UnreadableDocument
from schemas.values import Notice

T = TypeVar("T")


def make_corrupt_error(detail: str) -> UnreadableDocument:
    return UnreadableDocument(
        detail,
        code="CORRUPT_DOCUMENT",
        remedy="The file is damaged or incomplete. Send it again from the original.",
    )


def make_encrypted_error(kind: str) -> UnreadableDocument:
    return UnreadableDocument(
        f"The {kind} is encrypted.",
        code="ENCRYPTED_DOCUMENT",
        remedy="Save it without a password and send that.",
    )


def check_pages(pages: int, max_pages: int) -> None:
    if pages == 0:
        raise UnreadableDocument(
            "The document has no pages.",
            code="NO_PAGES",
            remedy="Export it again; a document needs at least one page.",
        )
    if pages > max_pages:
        raise LimitExceeded(
            f"The document has {pages:,} pages; {max_pages:,} are allowed.",
            code="TOO_MANY_PAGES",
            remedy="Split it, or raise ANABRANCH_INGEST__MAX_PAGES.",
        )


@dataclass(slots=True)
class CharacterBudget:
    """Counts the characters of one part of a document against a limit."""

    max_characters: int
    spent: int = 0

    def spend(self, characters: int) -> None:
        self.spent += characters
        check_characters(self.spent, self.max_characters)


@contextmanager
def set_inside(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a variable inside the context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


# A context variable, so that code deep inside a format reader can count without a parameter.
_BUDGET: ContextVar[CharacterBudget | None] = ContextVar("budget", default=None)


def limit_characters(max_characters: int) -> AbstractContextManager[None]:
    """Limit the characters that `spend` may count inside the context."""
    return set_inside(_BUDGET, CharacterBudget(max_characters))


def spend(characters: int) -> None:
    """Count characters that a file repeats (shared strings, cell spans) before they take memory.

    Raises LimitExceeded (TOO_MUCH_TEXT).
    """
    if (budget := _BUDGET.get()) is not None:
        budget.spend(characters)


def check_characters(characters: int, max_characters: int) -> None:
    if characters > max_characters:
        raise LimitExceeded(
            f"The document has {characters:,} or more characters; {max_characters:,} are "
            "allowed for a file of its size.",
            code="TOO_MUCH_TEXT",
            remedy=(
                "Split it, or raise ANABRANCH_INGEST__MAX_CHARACTERS or "
                "ANABRANCH_INGEST__CHARACTERS_PER_BYTE."
            ),
        )


MIN_POINTS = 1.5
_MIN_CONTRAST = 20
_MIN_OPACITY = 0.05
_HEX_COLOR = re.compile(r"#?([0-9a-f]{6})", re.I)

Color = tuple[int, int, int]
WHITE: Color = (255, 255, 255)
Bounds = tuple[float, float, float, float]
"""Left, top, right and bottom."""


def parse_color(value: str | None) -> Color | None:
    """Return the color of six hexadecimal digits, None for anything else."""
    match = _HEX_COLOR.fullmatch(value or "")
    if match is None:
        return None
    red, green, blue = bytes.fromhex(match[1])
    return red, green, blue


def is_unseen(
    color: Color | None, ground: Color | None, points: float | None = None, opacity: float = 1.0
) -> bool:
    """Return whether letters of this color and size cannot be seen on their ground."""
    if opacity < _MIN_OPACITY or (points is not None and 0 < points < MIN_POINTS):
        return True
    return (
        color is not None
        and ground is not None
        and max(abs(one - other) for one, other in zip(color, ground, strict=True)) < _MIN_CONTRAST
    )


def is_off_page(bounds: Bounds, width: float, height: float) -> bool:
    """Return whether a box has no part on a page or slide of this size."""
    left, top, right, bottom = bounds
    return right <= 0 or bottom <= 0 or left >= width or top >= height


# Whether readers keep text that a person who opens the document cannot see.

_MAX_NAMES = 20
# A context variable, so that code deep inside a format reader can look without a parameter.
_IS_KEPT: ContextVar[bool] = ContextVar("is_hidden_text_kept", default=False)


def keep_hidden_text(is_kept: bool) -> AbstractContextManager[None]:
    return set_inside(_IS_KEPT, is_kept)


def is_hidden_text_kept() -> bool:
    return _IS_KEPT.get()


def make_hidden_notice(names: Iterable[str]) -> Notice:
    """Name the hidden parts of a document, and say whether they were read."""
    action = "read" if is_hidden_text_kept() else "left out"
    detail = f"Text that a person who opens the file cannot see was {action}: {join_names(names)}."
    return Notice(code="HIDDEN_TEXT", detail=detail)


def list_notices(hidden: Sequence[str], embedded: Sequence[str] = ()) -> list[Notice]:
    """Name the hidden parts, and files inside the document, which are not read."""
    names = join_names(embedded)
    detail = f"Files inside the document were not read: {names}. Ingest them on their own."
    notices = [make_hidden_notice(hidden)] if hidden else []
    return notices + ([Notice(code="EMBEDDED_FILE", detail=detail)] if embedded else [])


def join_names(names: Iterable[str]) -> str:
    """Join names to a list that stays short."""
    listed = list(names)
    more = f" and {len(listed) - _MAX_NAMES} more" if len(listed) > _MAX_NAMES else ""
    return ", ".join(name[:100] for name in listed[:_MAX_NAMES]) + more
