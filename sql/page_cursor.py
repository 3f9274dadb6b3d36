"""Format and parse page cursors of lists ordered by a time or a count, then by id."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from schemas.errors import InvalidRequest
from schemas.timestamps import to_utc

MAX_COUNT = 2**31 - 1
T = TypeVar("T")


def format_cursor(moment: datetime, identity: UUID) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}_{identity}"


def parse_cursor(after: str | None) -> tuple[datetime | None, UUID | None]:
    """Parse a cursor by time. Raises InvalidRequest."""
    return _parse(after, lambda moment: to_utc(datetime.fromisoformat(moment)))


def format_count_cursor(count: int, identity: UUID) -> str:
    return f"{count}_{identity}"


def parse_count_cursor(after: str | None) -> tuple[int | None, UUID | None]:
    """Parse a cursor by count. Raises InvalidRequest."""
    return _parse(after, _parse_count)


def _parse(after: str | None, parse_first: Callable[[str], T]) -> tuple[T | None, UUID | None]:
    if after is None:
        return None, None
    first_text, _, identity = after.partition("_")
    try:
        return parse_first(first_text), UUID(identity)
    except ValueError as error:
        raise InvalidRequest(
            f"Invalid cursor after={after!r}.", remedy="Use the `next` value of the previous page."
        ) from error


def _parse_count(text: str) -> int:
    if not 0 <= (count := int(text)) <= MAX_COUNT:
        raise ValueError(f"count {text} is out of range")
    return count
