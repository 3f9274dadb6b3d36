"""The log as it grows, for people who watch: outside any consumer group, from a place that is kept as a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.records import StoredRecord


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """`cursor` is the place behind it. A large payload is left out; `bytes` is its size in any case."""

    stored: StoredRecord
    cursor: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """`cursor` is the place behind the last record. `missed` records before the first are no longer there."""

    records: Sequence[FeedRecord]
    cursor: str
    missed: int = 0


class Feed(Protocol):
    """Places are opaque texts; every one stays valid, whatever is appended. Raises InvalidRequest for a text that is no place, LogUnavailable."""

    async def first(self) -> str:
        """Before everything."""

    async def now(self, topics: Sequence[str]) -> str:
        """Behind everything that can be read."""

    async def read(self, after: str, topics: Sequence[str], limit: int) -> Page:
        """What follows, each record once whatever is committed meanwhile, in order within a partition; empty at the end. A topic that is not there is passed over."""

    async def behind(self, after: str, topics: Sequence[str], most: int) -> int:
        """How many records follow; counts no further than `most`."""
