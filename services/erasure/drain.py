"""Waiting until everything that was under way at a moment has come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from processors import STAGES
from services.generations.stage_assignments import StageAssignment, assign_stages
from services.storage import Storage
from sql.erasure import PgErasure
from sql.generation_builds import PgGenerationBuilds
from sql.generations import PgGenerations
from streams.codec import get_base_topic
from streams.topics import ACCEPTED, CONTROL, DEAD_LETTERS, DOCUMENT_TOPICS, FEEDBACK, QUERIES, RAW

log = structlog.get_logger(__name__)
POLL_S = 0.2
TOPIC_ORDER = (*DOCUMENT_TOPICS, QUERIES, FEEDBACK, DEAD_LETTERS)
"""In this order facts follow from each other."""


@dataclass(frozen=True, slots=True)
class DrainBarrier:
    """Each call goes down the river, topic by topic: takes the end of one, and waits until its readers have passed it, so that what they made of it is in the
    next before the end of that is taken. Then it waits until every replay has ended the batch that it was at, and gives the moment, by the clock of the tables,
    that it began at: nothing that was opened before writes any more, and what was asked before is known.

    Stage control and erasures wait for each other otherwise; a build that is paused, or that has failed, opens nothing before it goes on."""

    storage: Storage

    async def wait_for_all(self) -> datetime:
        return await self._wait_for_assignments(await self._list_assignments())

    async def wait_for_serving(self) -> datetime:
        """Without waiting for what is being built."""
        return await self._wait_for_assignments([reader for reader in await self._list_assignments() if not reader.suppresses_outcomes])

    async def wait_for_arrivals(self) -> None:
        """Until the tables know the documents of everything that producers had sent."""
        assignments = [assignment for assignment in await self._list_assignments() if not assignment.suppresses_outcomes]
        for topic in (RAW, ACCEPTED):
            await self._wait_for_topic([assignment for assignment in assignments if get_base_topic(assignment.topic) == topic])

    async def has_builds(self) -> bool:
        """Whether anything that is waited for is being built."""
        return any(reader.suppresses_outcomes for reader in await self._list_assignments())

    async def _list_assignments(self) -> list[StageAssignment]:
        builds = await PgGenerationBuilds(self.storage.pool).list_by_name()
        halted_builds = {name for name, build in builds.items() if build.paused or build.error}
        assignments = assign_stages(await PgGenerations(self.storage.pool).fetch_undropped(), STAGES, self.storage.producer_topics)
        return [
            assignment
            for assignment in assignments
            if assignment.topic != CONTROL and not (assignment.suppresses_outcomes and assignment.generation.name in halted_builds)
        ]

    async def _wait_for_assignments(self, assignments: Sequence[StageAssignment]) -> datetime:
        started_at, replays = await PgErasure(self.storage.pool).fetch_time(), await PgErasure(self.storage.pool).fetch_running_replays()
        for topic in TOPIC_ORDER:
            await self._wait_for_topic([assignment for assignment in assignments if get_base_topic(assignment.topic) == topic])
        while replays.items() & (await PgErasure(self.storage.pool).fetch_running_replays()).items():
            await asyncio.sleep(POLL_S)
        return started_at

    async def _wait_for_topic(self, assignments: Sequence[StageAssignment]) -> None:
        barriers = {topic: await self.storage.fetch_ends(topic) for topic in {assignment.topic for assignment in assignments}}
        for assignment in assignments:
            log.debug("waiting for a stage to pass what is in its topic", stage=assignment.stage.name, topic=assignment.topic)
            while (
                await self.storage.count_pending(assignment.group, assignment.topic, barriers[assignment.topic])
                and assignment in await self._list_assignments()
            ):
                await asyncio.sleep(POLL_S)
