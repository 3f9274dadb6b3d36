"""Ledgers of stages that do less than all: what they leave is somebody else's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from schemas.events import EventBuried
from schemas.generations import Generation
from schemas.ports.ledger import Claim, Claimed, Counts, Ledger, Projected
from sql.revisions import PgRevisions


@dataclass(frozen=True, slots=True)
class OwingLedger:
    """Of a stage that says only what became of documents: the facts that follow are still owed. When the generation that states them is dropped,
    its heir finds them so, however far its own projection has read."""

    inner: Ledger

    @property
    def generation(self) -> Generation:
        return self.inner.generation

    async def claim(self, stage: str, counts: Counts, events: Sequence[Projected]) -> list[Claimed]:
        return await self.inner.claim(stage, counts, events)

    async def begin(self, stage: str, events: Sequence[UUID]) -> None:
        await self.inner.begin(stage, events)

    async def release(self, stage: str, events: Sequence[UUID]) -> None:
        await self.inner.release(stage, events)

    async def settle(self, stage: str, reacted: Sequence[UUID], buried: Sequence[EventBuried]) -> None:
        if reacted:
            await self.inner.release(stage, reacted)
        if buried:
            await self.inner.settle(stage, (), buried)

    async def prune(self, stage: str, topic: str, partition: int, below: int) -> None:
        await self.inner.prune(stage, topic, partition, below)


@dataclass(frozen=True, slots=True)
class UnrepeatingLedger:
    """Of a stage that makes texts anew: a revision that says what is shown already needs none of its own."""

    inner: Ledger
    revisions: PgRevisions

    @property
    def generation(self) -> Generation:
        return self.inner.generation

    async def claim(self, stage: str, counts: Counts, events: Sequence[Projected]) -> list[Claimed]:
        claimed = await self.inner.claim(stage, counts, events)
        places = [(event.fact.data.document_id, tuple(event.fact.data.order)) for event in events]
        repeated = await self.revisions.repeated(places)
        return [replace(one, claim=Claim.DONE) if place in repeated else one for one, place in zip(claimed, places, strict=True)]

    async def begin(self, stage: str, events: Sequence[UUID]) -> None:
        await self.inner.begin(stage, events)

    async def release(self, stage: str, events: Sequence[UUID]) -> None:
        await self.inner.release(stage, events)

    async def settle(self, stage: str, reacted: Sequence[UUID], buried: Sequence[EventBuried]) -> None:
        await self.inner.settle(stage, reacted, buried)

    async def prune(self, stage: str, topic: str, partition: int, below: int) -> None:
        await self.inner.prune(stage, topic, partition, below)
