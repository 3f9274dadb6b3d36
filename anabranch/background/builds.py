"""How fast a generation is built beside the one that answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

BURST_S = 0.5


@dataclass(slots=True)
class Pace:
    """Shared by the readers of one generation. `events_per_second` is None where there is no limit."""

    events_per_second: float | None = None
    going: asyncio.Event = field(default_factory=asyncio.Event)
    free_at: float = 0.0

    def __post_init__(self) -> None:
        self.going.set()

    def set(self, *, paused: bool, events_per_second: float | None) -> None:
        """Another speed holds at once, also for those that wait already."""
        if events_per_second != self.events_per_second:
            self.events_per_second, self.free_at = events_per_second, 0.0
        if paused:
            self.going.clear()
        else:
            self.going.set()

    def few(self, events: int) -> int:
        """How many to take at once, so that a slow pace is an even one."""
        return events if self.events_per_second is None else max(1, min(events, int(self.events_per_second * BURST_S)))

    async def admit(self, events: int) -> None:
        """Wait while the build is paused, and until so many events may be taken."""
        await self.going.wait()
        rate = self.events_per_second
        if rate is None:
            return
        clock = asyncio.get_running_loop().time
        now = clock()
        self.free_at = max(self.free_at, now - BURST_S) + events / rate
        while (rest := self.free_at - clock()) > 0 and self.events_per_second == rate:
            await asyncio.sleep(min(rest, BURST_S))
        await self.going.wait()
