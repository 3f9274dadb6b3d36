"""Publish decisions about generations to topic `control`.

Every worker may publish the first generation `g1`: its event id is fixed, and the first event in
the log counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from processors import TOPICS, get_stage_versions
from schemas.errors import NewerVersion, PermanentError
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
from schemas.generations import Generation, IndexConfig, compute_chain_fingerprints
from schemas.ids import content_id
from schemas.ports.log import EventLog
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from services.engines import check_config_matches
from services.publishing import EventPublisher
from services.storage import Storage
from sql.index.generations import PgGenerations
from streams.codec import Codec

CE_SOURCE = "anabranch/generations"


@dataclass(frozen=True, slots=True)
class GenerationDecisions(EventPublisher):
    """Each call publishes one decision and returns its offset."""

    async def publish_created(
        self, generation: Generation, base: str, purpose: Literal["rebuild", "reindex"]
    ) -> int:
        return await self._decide(
            GenerationCreated(generation=generation, base=base, purpose=purpose), generation.name
        )

    async def publish_built(self, generation: str, barrier: dict[str, dict[int, int]]) -> int:
        return await self._decide(
            GenerationBuilt(generation=generation, barrier=barrier), generation
        )

    async def publish_promoted(self, generation: str, previous: str) -> int:
        return await self._decide(
            GenerationPromoted(generation=generation, previous=previous), generation
        )

    async def publish_dropped(self, generation: str) -> int:
        return await self._decide(GenerationDropped(generation=generation), generation)

    async def publish_exam(self, exam: Exam) -> int:
        return await self._decide(ExamCompleted(exam=exam), exam.generation, exam.tenant)

    async def publish_calibration(self, calibration: Calibration) -> int:
        return await self._decide(
            GenerationCalibrated(calibration=calibration),
            calibration.generation,
            calibration.tenant,
        )

    async def _decide(self, decision: EventData, generation: str, tenant: str | None = None) -> int:
        return await self.publish(decision, CE_SOURCE, generation, tenant=tenant)


PROJECTION_TIMEOUT_S = 5.0
"""How long a decision may take to reach the tables. Without a worker, it is projected later."""

FIRST_GENERATION = "g1"
GENESIS_SOURCE = "anabranch/genesis"
BASE_TOPICS = tuple(topic for topic in TOPICS if topic.feeds_index)


def build_first_generation(config: IndexConfig) -> Generation:
    fingerprints = compute_chain_fingerprints(config, get_stage_versions())
    return Generation(
        name=FIRST_GENERATION,
        config=config,
        how=fingerprints,
        topics={topic: topic for topic in BASE_TOPICS},
        state="live",
    )


async def find_current_generation(
    generations: PgGenerations, log: EventLog, codec: Codec
) -> Generation | None:
    """Find the live generation in the tables, else the first one in the log: it may not be
    projected yet.
    """
    live = await generations.fetch_live()
    if live is not None:
        return live
    async for stored in log.read(CONTROL):
        try:
            # A forged or unreadable record cannot create a generation.
            event = await codec.decode(stored)
        except (PermanentError, NewerVersion):
            continue
        if isinstance(event.data, GenerationCreated):
            return event.data.generation
    return None


async def ensure_generation(
    target: IndexConfig, storage: Storage, clock: Callable[[], datetime] = utc_now
) -> Generation:
    """Return the live generation, or publish the first one with configuration `target`.

    Raises GenerationMismatch if the live one has another configuration.
    """
    generations = storage.generations
    generation = await find_current_generation(generations, storage.log, storage.codec)
    if generation is None:
        # If another process does so at the same time, the first event counts: read it back.
        await EventPublisher(storage.log, storage.codec, clock).publish(
            GenerationCreated(generation=build_first_generation(target)),
            GENESIS_SOURCE,
            FIRST_GENERATION,
            content_id("genesis", FIRST_GENERATION),
        )
        generation = await find_current_generation(generations, storage.log, storage.codec)
    assert generation is not None
    check_config_matches(target, generation.config, generation.name)
    return generation
