"""The pace of a build: its rate and its pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.records import StoredRecord
from streams.retry import AttemptLimits
from streams.runner import StageRunner, WorkItem

# How far a build may run ahead of its rate, and the longest sleep before a new pace applies.
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
        # Unused capacity older than BURST_S is lost, so that a quiet build does not resume with a
        # burst.
        self.next_admission_at = max(self.next_admission_at, now - BURST_S) + event_count / rate
        # A new rate ends the wait: `configure` has reset the admission time.
        while (
            remaining_s := self.next_admission_at - clock()
        ) > 0 and self.events_per_second == rate:
            await asyncio.sleep(min(remaining_s, BURST_S))
        # The build may have been paused while this waited for the rate.
        await self.resumed.wait()


class ThrottledRunner(StageRunner):
    """A runner that claims events at the rate of its build."""

    def __init__(self, throttle: BuildThrottle, *runner_args: Any, limits: AttemptLimits) -> None:
        super().__init__(*runner_args, limits=limits)
        self.throttle = throttle

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        works: list[WorkItem] = []
        while records:
            # In slices, so that a pause takes effect before the whole batch is claimed.
            batch_size = self.throttle.limit_batch(len(records))
            await self.throttle.wait_for_capacity(batch_size)
            works += await super().claim(records[:batch_size])
            records = records[batch_size:]
        return works
