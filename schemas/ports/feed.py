"""The log as it grows, for people who watch: outside any consumer group, from a place that is kept as a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.records import StoredRecord


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """`cursor` is the place behind it. A large payload may be left out; `bytes` is its size in any case."""

    stored: StoredRecord
    cursor: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """`start` is the place before the first record, `cursor` that behind the last. `missed` records that followed the place that was asked for are no longer there
    (`at_least` so many: how many exactly is no longer known); whoever goes on from `start`, or from a later place, is not told of them again."""

    records: Sequence[FeedRecord]
    start: str
    cursor: str
    missed: int = 0
    at_least: bool = False
    more: bool = False
    """It ends because it is full, of records or of bytes: more may be there already."""


class Feed(Protocol):
    """Places are opaque texts; every one stays valid, whatever is appended or expires. Raises InvalidRequest for a text that is no place, PlaceAhead for one that lies
    behind the end of the log, LogUnavailable."""

    async def first(self) -> str:
        """Before everything that is there: what was lost before is not missed from here."""

    async def now(self, topics: Sequence[str]) -> str:
        """Behind everything that can be read."""

    async def read(self, after: str, topics: Sequence[str], limit: int) -> Page:
        """What follows, each record once whatever is committed meanwhile, in order within a partition; empty at the end. A topic that is not there is passed over."""

    async def behind(self, after: str, topics: Sequence[str], most: int) -> int:
        """How many records follow; counts no further than `most`."""
