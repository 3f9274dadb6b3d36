"""Orders of lists that are read page by page, and the cursors of their pages."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

from schemas.errors import InvalidRequest
from schemas.timestamps import to_utc

MAX_COUNT = 2**53
MAX_SORTED_CHARS = 80
"""Texts are compared by their beginning: a cursor holds it."""
ColumnType = Literal["timestamptz", "bigint", "text"]
T = TypeVar("T")
RowT = TypeVar("RowT")


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
    first_text, _, identity = after.rpartition("_")
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


def split_page(
    rows: list[RowT], limit: int, format_next: Callable[[RowT], T]
) -> tuple[list[RowT], T | None]:
    """Return the first `limit` rows, and the cursor of the last one if another row follows."""
    page = rows[:limit]
    return page, format_next(page[-1]) if len(rows) > limit else None


@dataclass(frozen=True, slots=True)
class PageOrder:
    """The order of a list, and the last row of the page before.

    A query of such a list has `{sort_key}`, `{sort_type}`, `{beyond}` and `{direction}`, and
    selects `sort_value`.
    """

    expression: str
    type: ColumnType
    is_descending: bool
    last_value: datetime | int | str | None
    last_id: UUID | None

    @property
    def substitutions(self) -> dict[str, str]:
        return {
            "sort_key": self.expression,
            "sort_type": self.type,
            "beyond": "<" if self.is_descending else ">",
            "direction": "desc" if self.is_descending else "asc",
        }

    def split_page(
        self, rows: list[dict[str, Any]], limit: int, identity: str
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return the first `limit` rows without `sort_value`, and the cursor of the next page."""
        page, next_cursor = split_page(
            rows, limit, lambda row: _format_value(row["sort_value"], row[identity])
        )
        for row in rows:
            del row["sort_value"]
        return page, next_cursor


@dataclass(frozen=True, slots=True)
class ListOrder:
    """The columns that a list can be sorted by, by their names in its items."""

    columns: Mapping[str, tuple[str, ColumnType]]
    """SQL expression without nulls, and its type."""
    default: str

    def parse(self, sort: str | None, after: str | None) -> PageOrder:
        """Parse `COLUMN` or `COLUMN:desc`, and a cursor of the list in that order.

        Raises InvalidRequest.
        """
        column, _, direction = (sort or self.default).partition(":")
        if column not in self.columns or direction not in ("", "asc", "desc"):
            raise InvalidRequest(
                f"This list cannot be sorted by {sort!r}.",
                remedy=f"Use one of {', '.join(self.columns)}, and add `:desc` for descending "
                "order.",
            )
        expression, column_type = self.columns[column]
        if column_type == "text":
            expression = f'left(lower({expression}), {MAX_SORTED_CHARS}) collate "C"'
        last_value, last_id = _parse(after, _PARSERS[column_type])
        return PageOrder(expression, column_type, direction == "desc", last_value, last_id)


def _format_value(value: datetime | int | str, identity: UUID) -> str:
    if isinstance(value, datetime):
        return format_cursor(value, identity)
    if isinstance(value, int):
        return format_count_cursor(value, identity)
    return f"{urlsafe_b64encode(value.encode()).decode()}_{identity}"


_PARSERS: Mapping[ColumnType, Callable[[str], datetime | int | str]] = {
    "timestamptz": lambda text: to_utc(datetime.fromisoformat(text)),
    "bigint": _parse_count,
    "text": lambda text: urlsafe_b64decode(text).decode().replace("\0", ""),
}
