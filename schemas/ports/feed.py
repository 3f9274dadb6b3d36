"""The live feed of the log, read outside any consumer group from a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.topics import StoredRecord


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """A record with the cursor after it.

    A large payload may be omitted; `size_bytes` is its size in any case.
    """

    stored_record: StoredRecord
    cursor: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EventCount:
    """Number of records of a topic in the interval that begins at `start`."""

    start: datetime
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A page of the feed, between two cursors.

    `missed_count` records after the requested cursor have expired (at least that many, if
    `missed_is_lower_bound`). A reader that continues from `start_cursor` or later does not see them
    reported again.
    """

    records: Sequence[FeedRecord]
    start_cursor: str
    cursor: str
    missed_count: int = 0
    missed_is_lower_bound: bool = False
    has_more: bool = False
    """The page is full, by count or by bytes; more records may be available already."""


class RecordFeed(Protocol):
    """Reads records by opaque cursors. A cursor stays valid whatever is appended or expires.

    Raises InvalidRequest for an invalid cursor, CursorAhead for one behind the end of the log, and
    LogUnavailable.
    """

    async def fetch_begin_cursor(self) -> str:
        """Return the cursor before the first available record.

        Records that expired earlier do not count as missed.
        """

    async def fetch_end_cursor(self, topics: Sequence[str]) -> str:
        """Return the cursor after the last readable record."""

    async def read_page(self, after: str, topics: Sequence[str], limit: int) -> FeedPage:
        """Read the records after a cursor.

        Each record is returned once, whatever is committed meanwhile, in order within a partition;
        the page is empty at the end of the log. Unknown topics are ignored.
        """

    async def count_by_time(
        self,
        topics: Sequence[str],
        *,
        since: datetime,
        until: datetime,
        bucket_s: int,
        tenant: str | None,
    ) -> Sequence[EventCount]:
        """Count the records of each topic by intervals of `bucket_s`, of a tenant or of all.

        Intervals without records are omitted. Raises InvalidRequest if the log cannot count them.
        """

    async def count_following(self, after: str, topics: Sequence[str], limit: int) -> int:
        """Count the records after a cursor, up to `limit`."""
