"""`next` and `after` of lists that are ordered by time and id."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from schemas.errors import InvalidRequest


def cursor(moment: datetime, identity: UUID) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}_{identity}"


def read_cursor(after: str | None) -> tuple[datetime | None, UUID | None]:
    """Raises InvalidRequest."""
    if after is None:
        return None, None
    moment, _, identity = after.partition("_")
    try:
        return datetime.fromisoformat(moment), UUID(identity)
    except ValueError as error:
        raise InvalidRequest(f"after={after!r} is no cursor", remedy="Take `next` of the page before.") from error
