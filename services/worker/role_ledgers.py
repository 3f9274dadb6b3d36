"""Ledgers of stage roles that complete less than a full stage does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from schemas.events import EventDeadLettered
from schemas.generations import Generation
from schemas.ports.ledger import ClaimResult, ClaimStatus, Ledger, OrderingPolicy, ProjectedEvent
from sql.revisions import PgRevisions


@dataclass(frozen=True, slots=True)
class OutcomesOnlyLedger:
    """Ledger of a stage that reports outcomes only: its claims stay pending.

    When the generation that emits the events is dropped, its successor finds them pending, however
    far its own projection has read.
    """

    inner: Ledger

    @property
    def generation(self) -> Generation:
        return self.inner.generation

    async def claim(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        return await self.inner.claim(stage, ordering, events)

    async def record_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        await self.inner.record_attempt(stage, event_ids)

    async def withdraw_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        await self.inner.withdraw_attempt(stage, event_ids)

    async def complete(
        self, stage: str, completed: Sequence[UUID], dead_letters: Sequence[EventDeadLettered]
    ) -> None:
        if completed:
            await self.inner.withdraw_attempt(stage, completed)
        if dead_letters:
            await self.inner.complete(stage, (), dead_letters)

    async def prune(self, stage: str, topic: str, partition: int, before_offset: int) -> None:
        await self.inner.prune(stage, topic, partition, before_offset)


@dataclass(frozen=True, slots=True)
class DeduplicatingLedger:
    """Ledger of `retranscribe`: a revision that is identical to the visible one needs no text of
    its own.
    """

    inner: Ledger
    revisions: PgRevisions

    @property
    def generation(self) -> Generation:
        return self.inner.generation

    async def claim(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        claimed = await self.inner.claim(stage, ordering, events)
        revisions = [
            (event.event.data.document_id, tuple(event.event.data.order)) for event in events
        ]
        repeated = await self.revisions.find_unchanged(revisions)
        return [
            replace(claim_result, status=ClaimStatus.DONE) if revision in repeated else claim_result
            for claim_result, revision in zip(claimed, revisions, strict=True)
        ]

    async def record_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        await self.inner.record_attempt(stage, event_ids)

    async def withdraw_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        await self.inner.withdraw_attempt(stage, event_ids)

    async def complete(
        self, stage: str, completed: Sequence[UUID], dead_letters: Sequence[EventDeadLettered]
    ) -> None:
        await self.inner.complete(stage, completed, dead_letters)

    async def prune(self, stage: str, topic: str, partition: int, before_offset: int) -> None:
        await self.inner.prune(stage, topic, partition, before_offset)
