"""The events table as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import asyncpg

from schemas.errors import InvalidRequest, PlaceAhead
from schemas.ports.feed import FeedRecord, Page
from sql.errors import log_errors
from sql.log_records import stored_record
from sql.pool import Pool
from sql.statements import statement

LARGEST = 65_536
"""Bytes of a payload that is read."""


@dataclass(frozen=True, slots=True)
class Place:
    """A transaction and a position: positions alone are committed out of order. What the log lost in batches up to `told` is no news to its reader."""

    xact: int
    position: int
    told: int = 0

    def __str__(self) -> str:
        return f"{self.xact}.{self.position}.{self.told}"


class PgFeed:
    """See `schemas.ports.feed.Feed`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def first(self) -> str:
        return str(replace(await self._now(), xact=0))

    async def now(self, topics: Sequence[str]) -> str:
        return str(await self._now())

    async def read(self, after: str, topics: Sequence[str], limit: int) -> Page:
        place = _place(after)
        with log_errors():
            rows = await self._pool.fetch(statement("feed"), list(topics), place.xact, place.position, limit, LARGEST, place.told)
        now = rows[0]
        _check(place, Place(now["horizon"], -1, now["last_batch"]))
        records = [_record(row) for row in rows if row["topic"] is not None]
        start = str(replace(place, told=now["last_batch"]))
        return Page(records, start, records[-1].cursor if records else start, now["missed"], now["at_least"], more=len(records) == limit)

    async def behind(self, after: str, topics: Sequence[str], most: int) -> int:
        place = _place(after)
        _check(place, await self._now())
        with log_errors():
            return int(await self._pool.fetchval(statement("feed_behind"), list(topics), place.xact, place.position, most))

    async def _now(self) -> Place:
        with log_errors():
            [row] = await self._pool.fetch(statement("feed_now"))
        return Place(row["horizon"], -1, row["last_batch"])


def _record(row: asyncpg.Record) -> FeedRecord:
    return FeedRecord(stored_record(row["topic"], row), str(Place(row["xact"], row["position"], row["last_batch"])), row["bytes"])


def _check(place: Place, now: Place) -> None:
    """Raises PlaceAhead. Neither transactions nor batches ever go back in the same log."""
    if (place.xact, place.position) > (now.xact, now.position) or place.told > now.told:
        raise PlaceAhead(f"the place {place} is ahead of this log, which has come to {now}")


def _place(text: str) -> Place:
    """Those of earlier versions have no third part."""
    try:
        place = Place(*map(int, text.split(".")))
    except (ValueError, TypeError):
        raise _no_place(text) from None
    if not (0 <= place.xact < 2**63 and -1 <= place.position < 2**63 and 0 <= place.told < 2**63):
        raise _no_place(text)
    return place


def _no_place(text: str) -> InvalidRequest:
    return InvalidRequest(f"{text[:80]!r} is no place in this log", remedy="Give one that it has told, or begin or now.")
