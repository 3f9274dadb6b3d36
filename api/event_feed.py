"""What the routes ask of the log as it grows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from schemas.event_feed import FeedMessage, LogPage
from schemas.principals import Principal


class EventFeedPort(Protocol):
    """Raises InvalidRequest for what is no place, PlaceAhead, LogUnavailable, DatabaseUnavailable."""

    async def read_page(
        self, caller: Principal, *, after: str, topics: list[str] | None, document: UUID | None, limit: int, since: datetime | None = None
    ) -> LogPage:
        """`after` is a place, `begin` or `now`; what was appended before `since` is passed over."""

    def follow(self, caller: Principal, *, after: str | None, topics: list[str] | None, document: UUID | None) -> AsyncGenerator[FeedMessage, None]:
        """From `after` (null: from now on; also where it is a place of another log, and that is told) until the server stops; `open` comes first. With a document also its status, whenever it has changed."""

    async def list_document_events(self, caller: Principal, document_id: UUID, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        """In the order of time; `after` counts the lines before."""

    def close_streams(self) -> None:
        """Every stream says goodbye and ends."""
