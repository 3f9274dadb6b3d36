"""Build a generation beside the live one: load, index, catch up; a rebuild then also checks,
switches and drops. The builder keeps no state: progress is the consumers' offsets, so another
worker continues after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from schemas.errors import AnabranchError, PermanentError, TransientError
from schemas.generations import Generation
from services.background_tasks import cancel_tasks, repeat
from services.generations.decisions import GenerationDecisions
from services.generations.service import finish_drop
from services.generations.stage_assignments import (
    StageAssignment,
    assign_stages,
    resolve_topic_generation,
)
from services.storage import Storage
from sql.database import Pool
from sql.index.generation_switch import switch_generation
from sql.index.generations import GenerationBuild, PgGenerationBuilds, fetch_first_needed_positions
from sql.index.partitions import begin_generation_drop, build_indexes, list_unremoved_generations
from sql.index.search import ensure_vector_index
from sql.operations.integrity import find_differing_tables
from streams.stage import Stage

log = structlog.get_logger(__name__)
POLL_S = 0.2
# A poll counts the records that are left, on the Postgres log one by one: rarer in a long load.
MIN_LOAD_POLL_S, MAX_LOAD_POLL_S, LOAD_POLL_SHARE = 0.05, 5.0, 0.05
# With CHECK_INTERVAL_S, 30 s for events in flight to reach both generations.
MAX_CHECKS = 60
CHECK_INTERVAL_S = 0.5
DROP_GRACE_S = 3.0
"""After this, every worker has stopped consuming for a dropped generation."""
EndOffsets = dict[int, int]


@dataclass(slots=True)
class GenerationBuilder:
    """Any number of workers may run one; an advisory lock lets one build each generation."""

    storage: Storage
    build_pool: Pool
    stages: Sequence[Stage]
    decisions: GenerationDecisions
    sync_builds: Callable[[], Awaitable[None]]
    """Add this process's engine calls to the builds."""
    build_tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    removal_tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    dropped_since: dict[str, float] = field(default_factory=dict)
    """Time at which each dropped generation that still has tables was first seen."""

    async def run(self) -> None:
        """Run until cancelled. Retries while the database or log is unavailable."""
        try:
            await repeat(self._reconcile, POLL_S, "build_poll_postponed")
        finally:
            await cancel_tasks([*self.build_tasks.values(), *self.removal_tasks.values()])

    async def _reconcile(self) -> None:
        builds = await self.storage.builds.list_by_name()
        # The generation was dropped.
        await cancel_tasks([task for name, task in self.build_tasks.items() if name not in builds])
        self.build_tasks = _select_running(self.build_tasks)
        self.removal_tasks = _select_running(self.removal_tasks)
        now = asyncio.get_running_loop().time()
        self.dropped_since = {
            name: self.dropped_since.get(name, now)
            for name in await list_unremoved_generations(self.storage.pool)
        }
        for name, since in self.dropped_since.items():
            if now - since >= DROP_GRACE_S and name not in self.removal_tasks:
                self.removal_tasks[name] = asyncio.create_task(self._remove(name))
        for name, build in builds.items():
            is_unfinished = build.error is None and (
                build.generation.state == "building"
                or (build.purpose == "rebuild" and build.generation.state == "shadow")
            )
            if is_unfinished and name not in self.build_tasks:
                self.build_tasks[name] = asyncio.create_task(self._run_build(build))

    async def _remove(self, name: str) -> None:
        try:
            # The build's own lock: a removal must not overlap a build of the same generation.
            async with PgGenerationBuilds(self.build_pool).try_lock(name) as is_owner:
                removal = (
                    await finish_drop(self.build_pool, self.storage.log, name) if is_owner else None
                )
                if removal and not removal.removed:
                    holder = removal.blocked_by
                    log.info("generation_removal_blocked", generation=name, holder=holder)
        except TransientError as error:
            log.warning(
                "generation_removal_postponed",
                generation=name,
                code=error.code,
                detail=error.detail,
            )

    async def _run_build(self, build: GenerationBuild) -> None:
        build_store, name = PgGenerationBuilds(self.build_pool), build.generation.name
        try:
            # A session lock, which Postgres releases if this worker dies.
            async with build_store.try_lock(name) as is_owner:
                if is_owner:
                    await self._build(build, build_store)
        except TransientError as error:
            log.warning("build_postponed", generation=name, code=error.code, detail=error.detail)
        except AnabranchError as error:
            log.error("build_failed", generation=name, code=error.code, detail=error.detail)
            await build_store.record_failure(name, error)

    async def _build(self, build: GenerationBuild, build_store: PgGenerationBuilds) -> None:
        generation = build.generation
        if generation.state == "building":
            await build_store.set_phase(generation.name, "loading")
            await self._wait_until_settled(generation)
            await build_store.set_phase(generation.name, "indexing")
            # After the load: one index build is cheaper than an update for each row.
            async for index_name in build_indexes(self.build_pool, generation.name):
                log.info("index_built", index=index_name)
            if await ensure_vector_index(self.build_pool, generation):
                log.info("vector_index_built", generation=generation.name)
            await build_store.set_phase(generation.name, "catching up")
            # Events arrived while the indexes were built.
            barrier = await self._wait_until_settled(generation)
            # Before the build is marked, so that its stored cost is complete.
            await self.sync_builds()
            counts = [
                await self.storage.log.count_records(assignment.topic)
                for assignment in await self._list_assignments(generation)
            ]
            rows = await build_store.count_rows(generation.name)
            await build_store.mark_built(generation.name, events=sum(counts), rows=rows)
            shared_ends = {
                topic: ends
                for topic, ends in barrier.items()
                if resolve_topic_generation(topic) != generation.name
            }
            await self.decisions.publish_built(generation.name, shared_ends)
            # A switch refuses a generation whose state is still `building`.
            generations = self.storage.generations
            while (
                current := await generations.fetch(generation.name)
            ) is not None and current.state == "building":
                await asyncio.sleep(POLL_S)
        if build.purpose == "rebuild":
            await self._replace_live(generation.name, build_store)

    async def _wait_until_settled(self, generation: Generation) -> Mapping[str, EndOffsets]:
        """Wait until all events now in the log, and those that follow from them, are processed.

        Return the end offsets.
        """
        assignments = await self._list_assignments(generation)
        topics = {assignment.topic for assignment in assignments}
        clock = asyncio.get_running_loop().time
        started_at = clock()
        barrier = {topic: await self.storage.fetch_ends(topic) for topic in sorted(topics)}
        # Upstream first: what a stage has passed is in the next topic.
        for assignment in assignments:
            # Its own topics fill during the load, so their ends are fetched at their turn.
            if resolve_topic_generation(assignment.topic) == generation.name:
                barrier[assignment.topic] = await self.storage.fetch_ends(assignment.topic)
            while await self.storage.log.count_pending(
                assignment.group, assignment.topic, barrier[assignment.topic]
            ):
                elapsed_s = clock() - started_at
                await asyncio.sleep(
                    min(max(MIN_LOAD_POLL_S, LOAD_POLL_SHARE * elapsed_s), MAX_LOAD_POLL_S)
                )
        return barrier

    async def _list_assignments(self, generation: Generation) -> list[StageAssignment]:
        """List the generation's own assignments, upstream stages first."""
        assignments = assign_stages(await self.storage.generations.fetch_undropped(), self.stages)
        return [
            assignment
            for assignment in assignments
            if assignment.generation.name == generation.name and assignment.suppresses_outcomes
        ]

    async def _replace_live(self, name: str, build_store: PgGenerationBuilds) -> None:
        build = await build_store.get(name)
        live = await self.storage.generations.fetch_live()
        # Any other state means that it was switched to or dropped meanwhile.
        if build is None or live is None or build.generation.state != "shadow":
            return
        await build_store.set_phase(name, "checking")
        await check_retained(self.storage, live.name, read_by=name)
        await self._check_same_content(live.name, name)
        await switch_generation(self.build_pool, name, self.decisions.publish_promoted)
        await build_store.set_phase(name, "built")
        # Only after the switch, which refuses a generation that misses a document.
        if not build.keep_previous:
            await begin_generation_drop(self.build_pool, live.name, self.decisions.publish_dropped)

    async def _check_same_content(self, live: str, name: str) -> None:
        """Raise PermanentError if the tables keep differing; events in flight make them differ for
        a moment.
        """
        for _ in range(MAX_CHECKS):
            differing_tables = await find_differing_tables(self.build_pool, live, name)
            if not differing_tables:
                return
            await asyncio.sleep(CHECK_INTERVAL_S)
        raise PermanentError(
            f"generation {name} differs from {live} in {', '.join(differing_tables)}",
            code="REBUILD_DIFFERS",
            remedy="Keep both generations and report this with the output of `anabranch db "
            "checksum --all`.",
        )


def _select_running(tasks: Mapping[str, asyncio.Task[None]]) -> dict[str, asyncio.Task[None]]:
    return {name: task for name, task in tasks.items() if not task.done()}


async def check_retained(storage: Storage, live: str, *, read_by: str | None = None) -> None:
    """Raise PermanentError with code NOT_RETAINED and the missing ranges.

    Offsets that generation `read_by` has consumed are not needed.
    """
    missing = []
    for required in await fetch_first_needed_positions(storage.pool, live, read_by):
        bounds = await storage.log.fetch_offset_bounds(required.topic)
        first = bounds.get(required.partition, (0, 0))[0]
        if required.offset < first:
            missing.append(
                f"{required.topic}, partition {required.partition}: offsets {required.offset} to "
                f"{first - 1}"
            )
    if missing:
        raise PermanentError(
            f"the log no longer holds what {live} was made from: {'; '.join(missing)}",
            code="NOT_RETAINED",
            remedy="Change an earlier stage too, or send the missing documents again.",
        )
