"""Publish decisions about generations to topic `control`, and wait until the tables have one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID, uuid4

from schemas.events import (
    EventData,
    ExamCompleted,
    GenerationBuilt,
    GenerationCalibrated,
    GenerationCreated,
    GenerationDropped,
    GenerationPromoted,
)
from schemas.exams import Calibration, Exam
from schemas.generations import Generation
from schemas.ports.log import RecordAppender
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from streams.codec import Codec
from streams.publisher import build_root_event

CE_SOURCE = "anabranch/generations"


@dataclass(frozen=True, slots=True)
class GenerationDecisions:
    """Each call publishes one decision and returns its offset. Raises LogUnavailable."""

    log: RecordAppender
    codec: Codec
    clock: Callable[[], datetime] = utc_now
    fresh_id: Callable[[], UUID] = uuid4

    async def publish_created(
        self, generation: Generation, base: str, purpose: Literal["rebuild", "reindex"]
    ) -> int:
        return await self._publish(
            GenerationCreated(generation=generation, base=base, purpose=purpose), generation.name
        )

    async def publish_built(self, generation: str, barrier: dict[str, dict[int, int]]) -> int:
        return await self._publish(
            GenerationBuilt(generation=generation, barrier=barrier), generation
        )

    async def publish_promoted(self, generation: str, previous: str) -> int:
        return await self._publish(
            GenerationPromoted(generation=generation, previous=previous), generation
        )

    async def publish_dropped(self, generation: str) -> int:
        return await self._publish(GenerationDropped(generation=generation), generation)

    async def publish_exam(self, exam: Exam) -> int:
        return await self._publish(ExamCompleted(exam=exam), exam.generation, exam.tenant)

    async def publish_calibration(self, calibration: Calibration) -> int:
        return await self._publish(
            GenerationCalibrated(calibration=calibration),
            calibration.generation,
            calibration.tenant,
        )

    async def _publish(
        self, decision: EventData, generation: str, tenant: str | None = None
    ) -> int:
        event = build_root_event(
            decision,
            self.fresh_id(),
            CE_SOURCE,
            self.clock,
            **({"tenant": tenant} if tenant else {}),
        )
        [position] = await self.log.append([await self.codec.encode(event, CONTROL, generation)])
        return position.offset


PROJECTION_TIMEOUT_S = 5.0
POLL_S = 0.05


async def wait_until_projected(
    is_projected: Callable[[], Awaitable[bool]], *, timeout_s: float = PROJECTION_TIMEOUT_S
) -> bool:
    """Poll until `is_projected` or the timeout; returns whether it is.

    Without a worker, it is projected later.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    while not (projected := await is_projected()) and clock() < deadline:
        await asyncio.sleep(POLL_S)
    return projected
