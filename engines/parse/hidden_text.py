"""Whether readers keep text that a person who opens the document cannot see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from schemas.values import Notice

_MAX_NAMES = 20
# A context variable, so that code deep inside a format reader can look without a parameter.
_IS_KEPT: ContextVar[bool] = ContextVar("is_hidden_text_kept", default=False)


@contextmanager
def keep_hidden_text(is_kept: bool) -> Iterator[None]:
    token = _IS_KEPT.set(is_kept)
    try:
        yield
    finally:
        _IS_KEPT.reset(token)


def is_hidden_text_kept() -> bool:
    return _IS_KEPT.get()


def make_hidden_notice(names: Iterable[str]) -> Notice:
    """Name the hidden parts of a document, and say whether they were read."""
    action = "read" if is_hidden_text_kept() else "left out"
    detail = f"Text that a person who opens the file cannot see was {action}: {join_names(names)}."
    return Notice(code="HIDDEN_TEXT", detail=detail)


def make_embedded_notice(names: Iterable[str]) -> Notice:
    """Name files inside the document that are not read; send each on its own instead."""
    detail = (
        f"Files inside the document were not read: {join_names(names)}. Ingest them on their own."
    )
    return Notice(code="EMBEDDED_FILE", detail=detail)


def join_names(names: Iterable[str]) -> str:
    """Join names to a list that stays short."""
    listed = list(names)
    more = f" and {len(listed) - _MAX_NAMES} more" if len(listed) > _MAX_NAMES else ""
    return ", ".join(name[:100] for name in listed[:_MAX_NAMES]) + more
