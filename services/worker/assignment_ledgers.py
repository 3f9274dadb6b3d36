"""The ledger of a stage assignment: who completes claims, and in how many transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from schemas.events import EventDeadLettered
from schemas.generations import Generation
from schemas.ports.ledger import ClaimResult, ClaimStatus, Ledger, OrderingPolicy, ProjectedEvent
from services.generations.stage_assignments import RETRANSCRIBE, StageAssignment, StageRole
from sql.catalog.revisions import PgRevisions
from sql.inbox.ledger import PgLedger
from sql.pool import Pool

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
