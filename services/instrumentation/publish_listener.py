"""A log that tells what was appended to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.records import Position, Record
from services.instrumentation.outcome_log import EventLogDecorator


@dataclass(frozen=True, slots=True)
class NotifyingLog(EventLogDecorator):
    """`appended` is told once the log has the records, and returns at once."""

    on_append: Callable[[Sequence[Record]], None]

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        self.on_append(records)
        return positions
