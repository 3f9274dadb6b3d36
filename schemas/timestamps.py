"""The system clock, and timestamps in requests and settings (RFC 3339)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator


def to_utc(timestamp: datetime) -> datetime:
    """Convert to UTC; a timestamp without a time zone is taken as UTC.

    Raises ValueError if the result is before year 1 or after year 9999.
    """
    if timestamp.tzinfo is None:
        return timestamp.replace(tzinfo=UTC)
    try:
        return timestamp.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(
            f"{timestamp.isoformat()} lies before year 1 or after year 9999 in UTC"
        ) from error


Timestamp = Annotated[datetime, AfterValidator(to_utc)]


def utc_now() -> datetime:
    return datetime.now(UTC)
