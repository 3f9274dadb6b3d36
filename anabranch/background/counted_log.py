"""A log that tells what was appended to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.background.outcome_log import AroundLog
from schemas.records import Position, Record


@dataclass(frozen=True, slots=True)
class CountedLog(AroundLog):
    """`appended` is told once the log has the records, and returns at once."""

    appended: Callable[[Sequence[Record]], None]

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        self.appended(records)
        return positions
