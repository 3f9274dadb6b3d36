"""Moments as people and programs give them (RFC 3339)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator


def to_utc(timestamp: datetime) -> datetime:
    """UTC where no zone is given. Raises ValueError for one that UTC has no date for: the calendar reaches from year 1 to 9999."""
    if timestamp.tzinfo is None:
        return timestamp.replace(tzinfo=UTC)
    try:
        return timestamp.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{timestamp.isoformat()} lies before year 1 or after year 9999 in UTC") from error


Timestamp = Annotated[datetime, AfterValidator(to_utc)]
