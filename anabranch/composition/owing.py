"""A ledger for a stage that says only what became of documents: the facts that follow are still owed, by whoever states them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.events import EventBuried
from schemas.generations import Generation
from schemas.ports.ledger import Claimed, Counts, Ledger, Projected


@dataclass(frozen=True, slots=True)
class OwingLedger:
    """When the generation that states the facts is dropped, the heir finds its reactions owed, however far its own projection has read."""

    inner: Ledger

    @property
    def generation(self) -> Generation:
        return self.inner.generation

    async def claim(self, stage: str, counts: Counts, events: Sequence[Projected]) -> list[Claimed]:
        return await self.inner.claim(stage, counts, events)

    async def settle(self, stage: str, reacted: Sequence[UUID], buried: Sequence[EventBuried]) -> None:
        if buried:
            await self.inner.settle(stage, (), buried)

    async def prune(self, stage: str, topic: str, partition: int, below: int) -> None:
        await self.inner.prune(stage, topic, partition, below)
