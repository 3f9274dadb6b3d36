"""`next` and `after` of lists that are ordered by a time or a count, then by id."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from schemas.errors import InvalidRequest
from schemas.moments import in_utc

LARGEST = 2**31 - 1
T = TypeVar("T")


def cursor(moment: datetime, identity: UUID) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}_{identity}"


def read_cursor(after: str | None) -> tuple[datetime | None, UUID | None]:
    """Raises InvalidRequest."""
    return _read(after, lambda moment: in_utc(datetime.fromisoformat(moment)))


def read_count_cursor(after: str | None) -> tuple[int | None, UUID | None]:
    """Raises InvalidRequest."""
    return _read(after, _count)


def _read(after: str | None, first: Callable[[str], T]) -> tuple[T | None, UUID | None]:
    if after is None:
        return None, None
    given, _, identity = after.partition("_")
    try:
        return first(given), UUID(identity)
    except ValueError as error:
        raise InvalidRequest(f"after={after!r} is no cursor", remedy="Take `next` of the page before.") from error


def _count(text: str) -> int:
    if not 0 <= (count := int(text)) <= LARGEST:
        raise ValueError(f"{text} is no count of rows")
    return count
