"""How much of a document is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from schemas.errors import LimitExceeded, UnreadableDocument


def check_pages(pages: int, max_pages: int) -> None:
    if pages == 0:
        raise UnreadableDocument("the document has no pages", code="NO_PAGES", remedy="Export it again; a document needs at least one page.")
    if pages > max_pages:
        raise LimitExceeded(
            f"the document has {pages} pages, more than {max_pages}", code="TOO_MANY_PAGES", remedy="Split it, or raise ANABRANCH_INGEST__MAX_PAGES."
        )


@dataclass(slots=True)
class CharacterBudget:
    """Characters that one part of a document may still become."""

    max_characters: int
    spent: int = 0

    def spend(self, characters: int) -> None:
        self.spent += characters
        check_characters(self.spent, self.max_characters)


_BUDGET: ContextVar[CharacterBudget | None] = ContextVar("budget", default=None)


@contextmanager
def limit_characters(max_characters: int) -> Iterator[None]:
    """Bound what `spend` counts inside."""
    token = _BUDGET.set(CharacterBudget(max_characters))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def spend(characters: int) -> None:
    """Count characters where a file repeats them (shared strings, spans), before they are built. Raises LimitExceeded (TOO_MUCH_TEXT)."""
    if (budget := _BUDGET.get()) is not None:
        budget.spend(characters)


def check_characters(characters: int, max_characters: int) -> None:
    if characters > max_characters:
        raise LimitExceeded(
            f"the document has {characters:,} characters or more; a file of its size may have {max_characters:,}",
            code="TOO_MUCH_TEXT",
            remedy="Split it, or raise ANABRANCH_INGEST__MAX_CHARACTERS or ANABRANCH_INGEST__CHARACTERS_PER_BYTE.",
        )
