"""How much of a document is read."""

from __future__ import annotations

from schemas.errors import LimitExceeded, UnreadableDocument


def check_pages(pages: int, most: int) -> None:
    if pages == 0:
        raise UnreadableDocument("the document has no pages", code="NO_PAGES", remedy="Export it again; a document needs at least one page.")
    if pages > most:
        raise LimitExceeded(
            f"the document has {pages} pages, more than {most}", code="TOO_MANY_PAGES", remedy="Split it, or raise ANABRANCH_INGEST__MAX_PAGES."
        )
