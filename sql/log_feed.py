"""The events table as it grows."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import InvalidRequest
from schemas.ports.feed import FeedRecord, Page
from sql.errors import log_errors
from sql.log_records import stored_record
from sql.pool import Pool
from sql.statements import statement

LARGEST = 65_536
"""Bytes of a payload that is read."""


class PgFeed:
    """See `schemas.ports.feed.Feed`. A place is a transaction and a position: positions alone are committed out of order."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def first(self) -> str:
        return _text(0, -1)

    async def now(self, topics: Sequence[str]) -> str:
        with log_errors():
            return _text(int(await self._pool.fetchval("select pg_snapshot_xmin(pg_current_snapshot())")), -1)

    async def read(self, after: str, topics: Sequence[str], limit: int) -> Page:
        with log_errors():
            rows = await self._pool.fetch(statement("feed"), list(topics), *_place(after), limit, LARGEST)
        records = [FeedRecord(stored_record(row["topic"], row), _text(row["xact"], row["position"]), row["bytes"]) for row in rows]
        return Page(records, records[-1].cursor if records else after)

    async def behind(self, after: str, topics: Sequence[str], most: int) -> int:
        with log_errors():
            return int(await self._pool.fetchval(statement("feed_behind"), list(topics), *_place(after), most))


def _text(xact: int, position: int) -> str:
    return f"{xact}.{position}"


def _place(text: str) -> tuple[int, int]:
    try:
        xact, position = map(int, text.split("."))
    except ValueError:
        raise InvalidRequest(f"{text[:80]!r} is no place in this log", remedy="Give one that it has told, or begin or now.") from None
    if not (0 <= xact < 2**63 and -1 <= position < 2**63):
        raise InvalidRequest(f"{text[:80]!r} is no place in this log", remedy="Give one that it has told, or begin or now.")
    return xact, position
