"""Ledger and runner of a stage assignment: who completes claims, and at which pace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from schemas.events import EventDeadLettered
from schemas.generations import Generation
from schemas.ports.ledger import ClaimResult, ClaimStatus, Ledger, OrderingPolicy, ProjectedEvent
from schemas.topics import StoredRecord
from services.generations.stage_assignments import RETRANSCRIBE, StageAssignment, StageRole
from sql.catalog.revisions import PgRevisions
from sql.database import Pool
from sql.inbox.ledger import PgLedger
from streams.retry import AttemptLimits
from streams.runner import StageRunner, WorkItem

BUILD_TRANSACTIONS = 2
"""Concurrent claims of one stage of a build."""


class OutcomesOnlyLedger(PgLedger):
    """Ledger of a stage that reports outcomes only: its claims stay pending.

    When the generation that emits the events is dropped, its successor finds them pending, however
    far its own projection has read.
    """

    async def complete(
        self, stage: str, completed: Sequence[UUID], dead_letters: Sequence[EventDeadLettered]
    ) -> None:
        if completed:
            # The claim stays pending, so nothing else would end its attempt.
            await self.withdraw_attempt(stage, completed)
        await super().complete(stage, (), dead_letters)


class DeduplicatingLedger(PgLedger):
    """Ledger of `retranscribe`: a revision that is identical to the visible one needs no text of
    its own.
    """

    def __init__(self, pool: Pool, generation: Generation) -> None:
        super().__init__(pool, generation)
        self._revisions = PgRevisions(pool)

    async def claim(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        claimed = await super().claim(stage, ordering, events)
        revisions = [
            (event.event.data.document_id, tuple(event.event.data.order)) for event in events
        ]
        repeated = await self._revisions.find_unchanged(revisions)
        return [
            # DONE skips the reaction, so no text is emitted.
            replace(claim_result, status=ClaimStatus.DONE) if revision in repeated else claim_result
            for claim_result, revision in zip(claimed, revisions, strict=True)
        ]


class BuildLedger(PgLedger):
    """Ledger of a build: claims in `BUILD_TRANSACTIONS` transactions at a time.

    Most of a load is the COPY of chunks, which keeps one core of the server busy per transaction.
    The events of a document stay in one transaction, in their order.
    """

    async def claim(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        lanes: list[list[int]] = [[] for _ in range(BUILD_TRANSACTIONS)]
        for index, event in enumerate(events):
            lanes[event.event.data.document_id.int % BUILD_TRANSACTIONS].append(index)
        # All have ended before an error is raised: the caller claims the same events again.
        claimed = await asyncio.gather(
            *(
                super(BuildLedger, self).claim(stage, ordering, [events[n] for n in lane])
                for lane in lanes
            ),
            return_exceptions=True,
        )
        results: dict[int, ClaimResult] = {}
        for lane, lane_results in zip(lanes, claimed, strict=True):
            if isinstance(lane_results, BaseException):
                raise lane_results
            results |= zip(lane, lane_results, strict=True)
        return [results[index] for index in range(len(events))]


def build_ledger(assignment: StageAssignment, pool: Pool) -> Ledger:
    if assignment.stage.name == RETRANSCRIBE:
        return DeduplicatingLedger(pool, assignment.generation)
    if assignment.suppresses_outcomes:
        return BuildLedger(pool, assignment.generation)
    # The document stage completes its claims: `retranscribe` has claims of its own.
    leaves_pending = (
        assignment.role is StageRole.REPORT_OUTCOMES
        and assignment.stage.ordering_policy != OrderingPolicy.LATEST
    )
    return (OutcomesOnlyLedger if leaves_pending else PgLedger)(pool, assignment.generation)


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
