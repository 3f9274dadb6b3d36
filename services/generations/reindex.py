"""Start a new generation beside the live one: a rebuild with the same configuration, or a reindex
with another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from processors import TOPICS, get_stage_versions
from schemas.errors import InvalidRequest, PermanentError
from schemas.generations import Generation, IndexConfig, compute_chain_fingerprints
from schemas.topics import count_partitions
from services.background_tasks import poll_until
from services.engines import Engines, diff_settings
from services.generations.builder import check_retained
from services.generations.decisions import PROJECTION_TIMEOUT_S, GenerationDecisions
from services.generations.reindex_plan import (
    OUTPUT_TOPICS,
    ReindexPlan,
    ReindexPlanner,
    find_changed_stages,
)
from services.storage import Storage
from sql.index.generations import GenerationBuild, unknown_generation_error


async def start_rebuild(
    storage: Storage,
    decisions: GenerationDecisions,
    *,
    keep_previous: bool,
    events_per_second: float | None = None,
    store_settings: Callable[[str, str], None] | None = None,
) -> str:
    """Publish the decision to rebuild the live generation from the log; returns the new
    generation's name.

    Workers build it and switch. An unfinished rebuild is continued. `store_settings(name, live)`
    stores the live generation's settings for the new one. Raises TransientError with code
    NO_GENERATION, PermanentError with code NOT_RETAINED and the missing range.
    """
    live = await storage.generations.resolve(None)
    build_store = storage.builds
    # A concurrent request waits here and finds the build of the first one.
    async with build_store.lock_decision():
        unfinished = [
            build
            for build in (await build_store.list_by_name()).values()
            if build.purpose == "rebuild" and build.generation.state in ("building", "shadow")
        ]
        if unfinished:
            return unfinished[0].generation.name
        # Before a name is allocated, since names are never reused.
        await check_retained(storage, live.name)
        name = await build_store.allocate_name(
            keep_previous=keep_previous, events_per_second=events_per_second
        )
        # Before the decision, on which workers open the engines.
        if store_settings is not None:
            store_settings(name, live.name)
        await decisions.publish_created(
            live.model_copy(update={"name": name, "state": "building"}), live.name, "rebuild"
        )
        # Inside the lock: the next request finds the build only once it is projected.
        await poll_until(partial(storage.generations.fetch, name), PROJECTION_TIMEOUT_S)
    return name


class ReindexTargets(Protocol):
    """Configurations that the settings of this process can build. Assignments have the form
    `section.key=value`.
    """

    def open_target(
        self, live: Generation, assignments: Sequence[str]
    ) -> AbstractAsyncContextManager[tuple[IndexConfig, Engines]]:
        """Open the engines of the live generation's settings plus the assignments.

        Raises InvalidRequest for an assignment that is not approved, unknown or invalid.
        """

    def store_settings(self, name: str, live: str, assignments: Sequence[str] = ()) -> None:
        """Store the live generation's settings plus the assignments for generation `name`."""


@dataclass(frozen=True, slots=True)
class ReindexService:
    """Plan, start and pace generation builds. Assignments apply on top of the live generation's
    settings.
    """

    storage: Storage
    decisions: GenerationDecisions
    targets: ReindexTargets
    partitions: int
    """Partitions of a topic that a generation gets of its own."""

    async def plan_build(self, settings: Sequence[str]) -> ReindexPlan:
        """Estimate the build without calling an engine or changing anything.

        Raises InvalidRequest (code NOTHING_CHANGES, SETTING_NOT_APPROVED, or that of the invalid
        setting), TransientError with code NO_GENERATION.
        """
        async with self._open_target(settings) as (live, config, engines):
            return await self._build_plan(live, config, engines)

    async def start_reindex(
        self, settings: Sequence[str], *, events_per_second: float | None = None
    ) -> tuple[str, ReindexPlan]:
        """Publish the decision and return the new generation's name; workers build it.

        Raises the errors of `plan_build`, and PermanentError with code NOT_RETAINED if the log no
        longer holds the events that the live generation was built from.
        """
        # Outside the lock below: planning reads the log, which may take long.
        async with self._open_target(settings) as (live, config, engines):
            plan = await self._build_plan(live, config, engines)
        if not plan.is_covered:
            raise PermanentError(
                f"topic {plan.topic} holds {plan.estimate.event_count} of the "
                f"{plan.estimate.expected_event_count} events that {live.name} was made from",
                code="NOT_RETAINED",
                remedy="Change an earlier stage too, or send the missing documents again.",
            )
        build_store = self.storage.builds
        async with build_store.lock_decision():
            name = await build_store.allocate_name(events_per_second=events_per_second)
            own_topics = {
                OUTPUT_TOPICS[stage]: f"{OUTPUT_TOPICS[stage]}.{name}" for stage in plan.stages
            }
            generation = Generation(
                name=name,
                config=config,
                how=compute_chain_fingerprints(config, get_stage_versions()),
                topics={**live.topics, **own_topics},
                state="building",
            )
            # Topics and settings first: workers start on the decision.
            partition_counts = count_partitions(TOPICS, self.partitions)
            await self.storage.log.create_topics(
                {topic: partition_counts[base] for base, topic in own_topics.items()},
                retention_ms={},
            )
            self.targets.store_settings(name, live.name, settings)
            await self.decisions.publish_created(generation, live.name, "reindex")
            await poll_until(partial(self.storage.generations.fetch, name), PROJECTION_TIMEOUT_S)
        return name, plan

    async def start_rebuild(
        self, *, keep_previous: bool, events_per_second: float | None = None
    ) -> str:
        return await start_rebuild(
            self.storage,
            self.decisions,
            keep_previous=keep_previous,
            events_per_second=events_per_second,
            store_settings=self.targets.store_settings,
        )

    async def get_build(self, name: str) -> dict[str, Any]:
        """Return the build. Raises NotFound."""
        build = await self.storage.builds.get(name)
        if build is None:
            raise unknown_generation_error(name)
        return _format_build(build)

    async def get_build_or_pending(self, name: str) -> dict[str, Any]:
        """Return the build, or a placeholder while stage `control` has not projected the decision
        yet.
        """
        build = await self.storage.builds.get(name)
        return _format_build(build) if build else {"generation": name, "state": "building"}

    async def change_pace(self, name: str, pace: Mapping[str, Any]) -> dict[str, Any]:
        """Set `paused` and `events_per_second`; absent keys keep their value.

        Raises NotFound, InvalidRequest for a generation that is built.
        """
        if (build := await self.get_build(name))["state"] not in ("building", "shadow"):
            raise InvalidRequest(
                f"Generation {name} is not being built; its state is {build['state']}.",
                code="GENERATION_IS_BUILT",
                remedy="Pace applies to builds only. To remove a standby generation, run "
                "`anabranch generations drop`.",
            )
        await self.storage.builds.set_pace(name, pace)
        return await self.get_build(name)

    @asynccontextmanager
    async def _open_target(
        self, assignments: Sequence[str]
    ) -> AsyncIterator[tuple[Generation, IndexConfig, Engines]]:
        live = await self.storage.generations.resolve(None)
        async with self.targets.open_target(live, assignments) as (config, engines):
            yield live, config, engines

    async def _build_plan(
        self, live: Generation, config: IndexConfig, engines: Engines
    ) -> ReindexPlan:
        stages = find_changed_stages(live, compute_chain_fingerprints(config, get_stage_versions()))
        if not stages:
            raise InvalidRequest(
                f"These settings build the same index as {live.name}.",
                code="NOTHING_CHANGES",
                remedy="List the settings with `anabranch config schema`, or rebuild the same "
                "index with `anabranch rebuild`.",
            )
        plan = await ReindexPlanner(self.storage, live, engines).plan(
            stages, config.embed.dimension
        )
        return replace(plan, settings=diff_settings(live.config, config))


def _format_build(build: GenerationBuild) -> dict[str, Any]:
    names = (
        *("base", "purpose", "phase", "paused", "events_per_second", "engine_calls", "events"),
        *("rows", "error", "started_at", "built_at"),
    )
    return {
        "generation": build.generation.name,
        "state": build.generation.state,
        **{name: getattr(build, name) for name in names},
    }
