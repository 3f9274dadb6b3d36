"""Decisions about generations, on their way into topic `control`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from anabranch.composition.overrides import NONE
from schemas.events import Event, GenerationBuilt, GenerationCreated, GenerationDropped, GenerationPromoted
from schemas.generations import Generation
from schemas.ports.log import EventLog
from streams.codec import Codec
from streams.publisher import own_fact
from streams.topics import CONTROL

AUTHOR = "anabranch/generations"


@dataclass(frozen=True, slots=True)
class Decisions:
    """Each call is a decision of its own and returns its offset once the log has it. Raises LogUnavailable."""

    log: EventLog
    codec: Codec
    clock: Callable[[], datetime] = NONE.clock
    fresh_id: Callable[[], UUID] = NONE.fresh_id

    async def created(self, generation: Generation, base: str, purpose: Literal["rebuild", "reindex"]) -> int:
        return await self._publish(GenerationCreated(generation=generation, base=base, purpose=purpose), generation.name)

    async def built(self, generation: str, barrier: dict[str, dict[int, int]]) -> int:
        return await self._publish(GenerationBuilt(generation=generation, barrier=barrier), generation)

    async def promoted(self, generation: str, previous: str) -> int:
        return await self._publish(GenerationPromoted(generation=generation, previous=previous), generation)

    async def dropped(self, generation: str) -> int:
        return await self._publish(GenerationDropped(generation=generation), generation)

    async def _publish(self, decision: Event, generation: str) -> int:
        fact = own_fact(decision, self.fresh_id(), AUTHOR, self.clock)
        [position] = await self.log.append([await self.codec.encode(fact, CONTROL, generation)])
        return position.offset
