"""Wait until everything in flight has been processed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from processors import STAGES, TOPICS, control
from schemas.topics import ACCEPTED, CONTROL, FEEDBACK, QUERIES, RAW, get_base_topic
from services.generations.stage_assignments import StageAssignment, assign_stages
from services.storage import Storage
from sql.operations.erasure import PgErasure

log = structlog.get_logger(__name__)
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class DrainBarrier:
    """Wait for events that were in flight when the call began.

    Each call takes topics in order: it fetches the end of a topic and waits until its consumers
    have passed it, so that their output is in the next topic before that topic's end is fetched.
    Then it waits until every replay has finished its current batch. It returns the time, by the
    database's clock, at which it began: nothing that was decrypted before is still being written.

    Of the stages that read topic `control`, only the one that projects it counts: erasures run in
    another. Builds that are paused or failed are left out.
    """

    storage: Storage

    async def wait_for_all(self) -> datetime:
        return await self._wait_for_assignments(await self._list_assignments())

    async def wait_for_serving(self) -> datetime:
        """Wait for serving generations only."""
        return await self._wait_for_assignments(await self._list_serving())

    async def wait_for_arrivals(self) -> None:
        """Wait until the tables know what every event that was sent is about: documents, facts and
        entities.
        """
        for topic in (RAW, ACCEPTED, FEEDBACK, CONTROL):
            await self._wait_for_topic(topic, await self._list_serving())

    async def wait_for_runs(self) -> None:
        """Wait until the tables reflect every event of queries and runs."""
        await self._wait_for_topic(QUERIES, await self._list_assignments())

    async def has_builds(self) -> bool:
        """Return whether a build is among the consumers to wait for."""
        return any(reader.suppresses_outcomes for reader in await self._list_assignments())

    async def _list_serving(self) -> list[StageAssignment]:
        return [one for one in await self._list_assignments() if not one.suppresses_outcomes]

    async def _list_assignments(self) -> list[StageAssignment]:
        builds = await self.storage.builds.list_by_name()
        halted_builds = {name for name, build in builds.items() if build.paused or build.error}
        assignments = assign_stages(
            await self.storage.generations.fetch_undropped(), STAGES, self.storage.producer_topics
        )
        return [
            assignment
            for assignment in assignments
            if (assignment.topic != CONTROL or assignment.stage.name == control.STAGE.name)
            and not (assignment.suppresses_outcomes and assignment.generation.name in halted_builds)
        ]

    async def _wait_for_assignments(self, assignments: Sequence[StageAssignment]) -> datetime:
        # The time comes first: whatever was decrypted before it is awaited below.
        started_at = await PgErasure(self.storage.pool).fetch_time()
        replays = await PgErasure(self.storage.pool).fetch_running_replays()
        for topic in TOPICS:  # upstream first
            await self._wait_for_topic(topic, assignments)
        # Pairs of a replay and its number of records read, which a finished batch changes.
        while (
            replays.items() & (await PgErasure(self.storage.pool).fetch_running_replays()).items()
        ):
            await asyncio.sleep(POLL_S)
        return started_at

    async def _wait_for_topic(self, base: str, candidates: Sequence[StageAssignment]) -> None:
        assignments = [one for one in candidates if get_base_topic(one.topic) == base]
        barriers = {
            topic: await self.storage.fetch_ends(topic)
            for topic in {assignment.topic for assignment in assignments}
        }
        for assignment in assignments:
            log.debug("drain_waiting", stage=assignment.stage.name, topic=assignment.topic)
            # A consumer that was stopped or halted meanwhile would never reach the barrier.
            while (
                await self.storage.log.count_pending(
                    assignment.group, assignment.topic, barriers[assignment.topic]
                )
                and assignment in await self._list_assignments()
            ):
                await asyncio.sleep(POLL_S)
