"""Ports of consumers: their stored offsets, and the reasons why they are paused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.errors import AnabranchError


class OffsetStore(Protocol):
    """How far each consumer group has read, by the tables' own account.

    All records below the offset are reflected in the tables. The offset is stored before it is
    acknowledged to the log, so a group with more acknowledged than stored reads other tables than
    before: restored from a backup, or a standby that was behind.

    Every call may raise DatabaseUnavailable, and FatalError with code TABLES_RESTORED if the stored
    offset is lower than one that this process has stored or read before.
    """

    async def fetch_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the offset by partition."""

    async def store_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Store offsets. A stored offset never decreases."""


class NoOffsetStore:
    """An `OffsetStore` that stores nothing: a group continues from the log's committed offset."""

    async def fetch_offsets(self, group: str, topic: str) -> dict[int, int]:
        return {}

    async def store_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Do nothing."""


ALL_PARTITIONS = -1
"""Stands for all partitions of a topic."""


@dataclass(frozen=True, slots=True)
class Pause:
    reader: str
    """The consumer group."""
    topic: str
    partition: int
    code: str
    detail: str
    remedy: str
    since: datetime


class ReaderStatus(Protocol):
    """Publishes why a consumer is paused.

    Entries expire unless renewed. Every call may raise DatabaseUnavailable.
    """

    async def set_paused(
        self, reader: str, topic: str, partition: int, reason: AnabranchError
    ) -> None: ...

    async def clear_paused(self, reader: str, topic: str, partition: int) -> None: ...
