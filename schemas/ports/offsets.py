"""Up to where consumer groups have come, as the tables themselves know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class OffsetStore(Protocol):
    """Everything of a partition below the offset has come into the tables, as far as the group is concerned. Noted before the log is told: a group that has acknowledged
    more than its tables know has others than it had, from a backup or of a standby that was behind.

    Every call may raise DatabaseUnavailable, and FatalError with code TABLES_RESTORED where the tables know less than this process has told them or heard from them."""

    async def fetch_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Offset by partition."""

    async def store_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Offsets never sink."""


class NoOffsetStore:
    """`OffsetStore` where nothing is kept: a group goes on where the log says."""

    async def fetch_offsets(self, group: str, topic: str) -> dict[int, int]:
        return {}

    async def store_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Nothing to do."""
