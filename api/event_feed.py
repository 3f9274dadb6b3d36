"""Port of the event feed: the log as pages and as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from schemas.event_feed import FeedMessage, LogPage
from schemas.principals import Principal


class EventFeedPort(Protocol):
    """Raises InvalidRequest for an invalid cursor, PlaceAhead, LogUnavailable, DatabaseUnavailable."""

    async def read_page(
        self,
        caller: Principal,
        *,
        after: str,
        topics: list[str] | None,
        document: UUID | None,
        limit: int,
        since: datetime | None = None,
    ) -> LogPage:
        """Read a page after a cursor, `begin` or `now`. Events appended before `since` are skipped."""

    def follow(
        self,
        caller: Principal,
        *,
        after: str | None,
        topics: list[str] | None,
        document: UUID | None,
    ) -> AsyncGenerator[FeedMessage, None]:
        """Stream messages after a cursor until the server stops; `open` comes first.

        Starts at the current end when `after` is None or, after a `reset` message, when it belongs
        to another log. With a document, its status is included whenever it changes.
        """

    async def list_document_events(
        self, caller: Principal, document_id: UUID, *, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """List attempts in order of time. `after` is the number of lines to skip."""

    def close_streams(self) -> None:
        """End every stream with a `bye` message."""
