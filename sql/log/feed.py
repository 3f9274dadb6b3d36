"""Read the events table as a feed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from schemas.errors import CursorAhead, InvalidRequest
from schemas.ports.feed import EventCount, FeedPage, FeedRecord
from sql.database import PgStore
from sql.log.event_log import fetch_log_rows, fetch_log_value, to_stored_record

MAX_PAYLOAD_BYTES = 65_536
"""Payloads larger than this are omitted."""


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A cursor of the feed: transaction and position, since positions are not committed in their
    order.

    Batches of expired records up to `seen_batch` were reported to the reader.
    """

    xact: int
    position: int
    seen_batch: int = 0

    def __str__(self) -> str:
        return f"{self.xact}.{self.position}.{self.seen_batch}"


class PgFeed(PgStore):
    """Implements `schemas.ports.feed.RecordFeed`."""

    async def fetch_begin_cursor(self) -> str:
        # Transaction 0 is before all records; batches that expired before are not reported as
        # missed.
        return str(replace(await self._fetch_head(), xact=0))

    async def fetch_end_cursor(self, topics: Sequence[str]) -> str:
        return str(await self._fetch_head())

    async def read_page(self, after: str, topics: Sequence[str], limit: int) -> FeedPage:
        position = _parse_position(after)
        rows = await fetch_log_rows(
            self._pool,
            "feed_page",
            list(topics),
            position.xact,
            position.position,
            limit,
            MAX_PAYLOAD_BYTES,
            position.seen_batch,
        )
        # The query returns at least one row, which carries the state of the log.
        head = rows[0]
        _check_not_ahead(position, FeedPosition(head["horizon"], -1, head["last_batch"]))
        records = [
            FeedRecord(
                to_stored_record(row["topic"], row),
                str(FeedPosition(row["xact"], row["position"], row["last_batch"])),
                row["bytes"],
            )
            for row in rows
            if row["topic"] is not None
        ]
        # From here on these expired batches count as reported.
        start = str(replace(position, seen_batch=head["last_batch"]))
        return FeedPage(
            records,
            start,
            records[-1].cursor if records else start,
            head["missed"],
            head["at_least"],
            has_more=len(records) == limit,
        )

    async def count_by_time(
        self,
        topics: Sequence[str],
        *,
        since: datetime,
        until: datetime,
        bucket_s: int,
        tenant: str | None,
    ) -> Sequence[EventCount]:
        parameters = (list(topics), since, until, bucket_s, tenant)
        rows = await fetch_log_rows(self._pool, "count_events_by_time", *parameters)
        return [EventCount(**dict(row)) for row in rows]

    async def count_following(self, after: str, topics: Sequence[str], limit: int) -> int:
        position = _parse_position(after)
        _check_not_ahead(position, await self._fetch_head())
        parameters = (list(topics), position.xact, position.position, limit)
        return int(await fetch_log_value(self._pool, "feed_lag", *parameters))

    async def _fetch_head(self) -> FeedPosition:
        [row] = await fetch_log_rows(self._pool, "feed_head")
        return FeedPosition(row["horizon"], -1, row["last_batch"])


def _check_not_ahead(position: FeedPosition, head: FeedPosition) -> None:
    """Raise CursorAhead if the cursor is ahead of the log's head.

    Transactions and batches of one log never go back, so such a cursor belongs to another log.
    """
    if (position.xact, position.position) > (
        head.xact,
        head.position,
    ) or position.seen_batch > head.seen_batch:
        raise CursorAhead(f"Cursor {position} is ahead of this log, whose head is {head}.")


def _parse_position(text: str) -> FeedPosition:
    """Parse a cursor. Cursors of earlier versions have no third part."""
    try:
        position = FeedPosition(*map(int, text.split(".")))
    except (ValueError, TypeError):
        raise _invalid_cursor_error(text) from None
    if not (
        0 <= position.xact < 2**63
        and -1 <= position.position < 2**63
        and 0 <= position.seen_batch < 2**63
    ):
        raise _invalid_cursor_error(text)
    return position


def _invalid_cursor_error(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid cursor {text[:80]!r}.",
        remedy="Use a cursor that the feed returned, or `begin` or `now`.",
    )
