"""Another generation beside the live one: from the same facts, or with another configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from anabranch.approvals import check_settings
from anabranch.composition.engines import Engines, prepare_engines
from anabranch.composition.overrides import NONE, Overrides
from anabranch.composition.storage import Storage
from anabranch.desk.decisions import Decisions
from anabranch.desk.hearing import heard
from anabranch.desk.planning import OUTPUTS, Plan, Planner, changed_stages
from anabranch.desk.retention import check_retained
from anabranch.generation_settings import keep_settings, sets_of, settings_of
from anabranch.indexing import changed_settings, check_index_settings, index_config, wanted_config
from anabranch.settings import Settings
from anabranch.settings_loading import amended
from processors import versions
from schemas.errors import ConfigurationError, InvalidRequest, NotFound, PermanentError, TransientError
from schemas.generations import Generation, IndexConfig, chain_fingerprints
from sql.builds import Build, PgBuilds
from sql.generations import PgGenerations
from streams.topics import partition_counts


async def start_rebuild(storage: Storage, decisions: Decisions, *, keep: bool, events_per_second: float | None = None, settings: Settings | None = None) -> str:
    """State that the live generation is to be built anew from the log; returns the new one's name. Workers do the rest, and switch. One that is under way
    already is gone on with. In the data folder of `settings` it is kept what the live one was made with, for the new one too. Raises TransientError with code
    NO_GENERATION, PermanentError with code NOT_RETAINED and the missing range."""
    live = await live_generation(storage)
    books = PgBuilds(storage.pool)
    async with books.deciding():
        under_way = [build for build in (await books.all()).values() if build.purpose == "rebuild" and build.generation.state in ("building", "shadow")]
        if under_way:
            return under_way[0].generation.name
        await check_retained(storage, live.name)
        name = await books.named(keep=keep, events_per_second=events_per_second)
        if settings is not None:
            keep_settings(settings, name, sets_of(settings, live.name))
        await decisions.created(live.model_copy(update={"name": name, "state": "building"}), live.name, "rebuild")
        await _heard(storage, name)
    return name


async def _heard(storage: Storage, name: str) -> None:
    async def is_there() -> bool:
        return await PgGenerations(storage.pool).get(name) is not None

    await heard(is_there)


@dataclass(frozen=True, slots=True)
class Reindexing:
    """`sets` are settings as `section.key=value`, on top of those that the live generation was made with."""

    settings: Settings
    storage: Storage
    decisions: Decisions
    overrides: Overrides = NONE

    async def plan(self, sets: Sequence[str]) -> Plan:
        """Raises InvalidRequest (code NOTHING_CHANGES, SETTING_NOT_APPROVED, or what is wrong with a setting), TransientError with code NO_GENERATION. Nothing is changed, no engine asked."""
        async with self._wanted(sets) as (live, config, engines):
            return await self._plan(live, config, engines)

    async def start(self, sets: Sequence[str], *, events_per_second: float | None = None) -> tuple[str, Plan]:
        """The new generation's name, once the decision is in the log; workers build it. The same errors, and PermanentError with code NOT_RETAINED where the log
        no longer holds what the live generation was made from."""
        async with self._wanted(sets) as (live, config, engines):
            plan = await self._plan(live, config, engines)
        if not plan.covered:
            raise PermanentError(
                f"topic {plan.topic} holds {plan.foreseen.events} of the {plan.foreseen.expected} events that {live.name} was made from",
                code="NOT_RETAINED",
                remedy="Change an earlier stage too, or send the missing documents again.",
            )
        books = PgBuilds(self.storage.pool)
        async with books.deciding():
            name = await books.named(events_per_second=events_per_second)
            generation = _named(live, name, config, plan.stages)
            await self._make_topics(generation)
            keep_settings(self.settings, name, [*sets_of(self.settings, live.name), *sets])
            await self.decisions.created(generation, live.name, "reindex")
            await _heard(self.storage, name)
        return name, plan

    async def rebuild(self, *, keep: bool, events_per_second: float | None = None) -> str:
        return await start_rebuild(self.storage, self.decisions, keep=keep, events_per_second=events_per_second, settings=self.settings)

    async def show(self, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        build = await PgBuilds(self.storage.pool).get(name)
        if build is None:
            raise NotFound(f"no generation {name!r} is there or on its way", remedy="`anabranch generations list` shows them.")
        return _body(build)

    async def show_soon(self, name: str) -> dict[str, Any]:
        """Of one that was decided on just now: stage control may not have heard of it yet."""
        build = await PgBuilds(self.storage.pool).get(name)
        return _body(build) if build else {"generation": name, "state": "building"}

    async def pace(self, name: str, pace: Mapping[str, Any]) -> dict[str, Any]:
        """`paused` and `events_per_second`; what is left out stays as it is. Raises NotFound, InvalidRequest for one that answers or stands by."""
        if (found := await self.show(name))["state"] not in ("building", "shadow"):
            remedy = "One that answers reads what comes as it comes; one that stands by for nothing is given up by `anabranch generations drop`."
            raise InvalidRequest(f"generation {name} is not being built, it is {found['state']}", code="GENERATION_IS_BUILT", remedy=remedy)
        await PgBuilds(self.storage.pool).set_pace(name, pace)
        return await self.show(name)

    @asynccontextmanager
    async def _wanted(self, sets: Sequence[str]) -> AsyncIterator[tuple[Generation, IndexConfig, Engines]]:
        """Raises InvalidRequest for settings that nothing can be made with."""
        check_settings(self.settings.data_dir, sets)
        live = await live_generation(self.storage)
        async with AsyncExitStack() as stack:
            with _mistaken():
                settings = amended(settings_of(self.settings, live.name), sets)
                check_index_settings(sets)
                wanted = wanted_config(settings, live.config)
                engines = await stack.enter_async_context(prepare_engines(settings, wanted, self.overrides))
                config = index_config(wanted, engines)
            yield live, config, engines

    async def _plan(self, live: Generation, config: IndexConfig, engines: Engines) -> Plan:
        stages = changed_stages(live, chain_fingerprints(config, versions()))
        if not stages:
            remedy = "`anabranch config schema` lists the settings; `anabranch rebuild` makes the same index anew."
            raise InvalidRequest(f"with these settings the index would be the same as {live.name}", code="NOTHING_CHANGES", remedy=remedy)
        plan = await Planner(self.storage, live, engines).plan(stages, config.embed.dimension)
        return replace(plan, settings=changed_settings(live.config, config))

    async def _make_topics(self, generation: Generation) -> None:
        plain = partition_counts(self.settings.kafka.partitions)
        own = {topic: plain[name] for name, topic in generation.topics.items() if topic.endswith(f".{generation.name}")}
        await self.storage.log.create_topics(own, retention_ms={})


async def live_generation(storage: Storage) -> Generation:
    live = await PgGenerations(storage.pool).live()
    if live is None:
        raise TransientError("no generation is live", code="NO_GENERATION", remedy="Start a worker: it makes the first one.")
    return live


@contextmanager
def _mistaken() -> Iterator[None]:
    """What would stop a process at its start is, in a request, the client's mistake."""
    try:
        yield
    except ConfigurationError as error:
        raise InvalidRequest(error.detail, code=error.code, remedy=error.remedy) from error


def _named(live: Generation, name: str, config: IndexConfig, stages: Sequence[str]) -> Generation:
    own = {OUTPUTS[stage]: f"{OUTPUTS[stage]}.{name}" for stage in stages}
    return Generation(name=name, config=config, how=chain_fingerprints(config, versions()), topics={**live.topics, **own}, state="building")


def _body(build: Build) -> dict[str, Any]:
    return {
        "generation": build.generation.name,
        "state": build.generation.state,
        "base": build.base,
        "purpose": build.purpose,
        "phase": build.phase,
        "paused": build.paused,
        "events_per_second": build.events_per_second,
        "engine_calls": dict(build.engine_calls),
        "events": build.events,
        "rows": build.rows,
        "error": build.error,
        "started_at": build.started_at,
        "built_at": build.built_at,
    }
