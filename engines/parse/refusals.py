"""Refusals that format readers share: damaged or encrypted files, too many pages or characters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from schemas.errors import LimitExceeded, UnreadableDocument


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


# A context variable, so that code deep inside a format reader can count without a parameter.
_BUDGET: ContextVar[CharacterBudget | None] = ContextVar("budget", default=None)


@contextmanager
def limit_characters(max_characters: int) -> Iterator[None]:
    """Limit the characters that `spend` may count inside the context."""
    token = _BUDGET.set(CharacterBudget(max_characters))
    try:
        yield
    finally:
        _BUDGET.reset(token)


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
