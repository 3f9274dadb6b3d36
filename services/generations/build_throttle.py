"""Limit the speed of a generation build."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

BURST_S = 0.5


@dataclass(slots=True)
class BuildThrottle:
    """Shared by the consumers of one generation. `events_per_second` is None for no limit."""

    events_per_second: float | None = None
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    next_admission_at: float = 0.0

    def __post_init__(self) -> None:
        self.resumed.set()

    def configure(self, *, paused: bool, events_per_second: float | None) -> None:
        """Apply pause and rate at once, also to consumers that are waiting."""
        if events_per_second != self.events_per_second:
            self.events_per_second, self.next_admission_at = events_per_second, 0.0
        if paused:
            self.resumed.clear()
        else:
            self.resumed.set()

    def limit_batch(self, event_count: int) -> int:
        """Limit a batch to what `BURST_S` allows, so that a slow rate is an even one."""
        return (
            event_count
            if self.events_per_second is None
            else max(1, min(event_count, int(self.events_per_second * BURST_S)))
        )

    async def wait_for_capacity(self, event_count: int) -> None:
        """Wait while the build is paused, and until the rate admits so many events."""
        await self.resumed.wait()
        rate = self.events_per_second
        if rate is None:
            return
        clock = asyncio.get_running_loop().time
        now = clock()
        self.next_admission_at = max(self.next_admission_at, now - BURST_S) + event_count / rate
        while (
            remaining_s := self.next_admission_at - clock()
        ) > 0 and self.events_per_second == rate:
            await asyncio.sleep(min(remaining_s, BURST_S))
        await self.resumed.wait()
