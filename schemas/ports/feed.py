"""The log as it grows, for people who watch: outside any consumer group, from a place that is kept as a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.records import StoredRecord


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """`cursor` is the place behind it. A large payload may be left out; `bytes` is its size in any case."""

    stored_record: StoredRecord
    cursor: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FeedPage:
    """`start` is the place before the first record, `cursor` that behind the last. `missed` records that followed the place that was asked for are no longer there
    (`at_least` so many: how many exactly is no longer known); whoever goes on from `start`, or from a later place, is not told of them again."""

    records: Sequence[FeedRecord]
    start_cursor: str
    cursor: str
    missed_count: int = 0
    missed_is_lower_bound: bool = False
    has_more: bool = False
    """It ends because it is full, of records or of bytes: more may be there already."""


class RecordFeed(Protocol):
    """Places are opaque texts; every one stays valid, whatever is appended or expires. Raises InvalidRequest for a text that is no place, PlaceAhead for one that lies
    behind the end of the log, LogUnavailable."""

    async def fetch_begin_cursor(self) -> str:
        """Before everything that is there: what was lost before is not missed from here."""

    async def fetch_end_cursor(self, topics: Sequence[str]) -> str:
        """Behind everything that can be read."""

    async def read_page(self, after: str, topics: Sequence[str], limit: int) -> FeedPage:
        """What follows, each record once whatever is committed meanwhile, in order within a partition; empty at the end. A topic that is not there is passed over."""

    async def count_following(self, after: str, topics: Sequence[str], limit: int) -> int:
        """How many records follow; counts no further than `most`."""
