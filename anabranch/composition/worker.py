"""A worker: stages of every generation, reading the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from anabranch.background.maintenance import Maintenance
from anabranch.background.replaying import Replaying
from anabranch.background.source_hosting import Door, SourceHosts
from anabranch.background.warming import warming
from anabranch.composition.building import Builder
from anabranch.composition.engines import Engines, models_folder, prepare_engines
from anabranch.composition.genesis import current_generation, publish_first
from anabranch.composition.hosting import Hosting
from anabranch.composition.overrides import NONE, Overrides
from anabranch.composition.restored import check_current
from anabranch.composition.sealing import destroy_again
from anabranch.composition.shelf import EngineShelf
from anabranch.composition.sources import source_hosts
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.desk.decisions import Decisions
from anabranch.generation_settings import settings_of
from anabranch.indexing import check_same, index_config, wanted_config
from anabranch.settings import Settings
from processors import STAGES
from schemas.generations import Generation, IndexConfig
from sql.generations import PgGenerations
from sql.index_changes import PrunedChanges, forget_foreign_changes
from sql.pool import RELAXED, close_pool, open_pool
from sql.restored_log import take_over_log
from streams.observe import Observer, Silent
from streams.stage import Stage

BUILD_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class Worker:
    """`generation` is the one that answered when the worker was prepared. `run` returns only by being cancelled, or raises what stopped a stage."""

    generation: Generation
    storage: Storage
    hosting: Hosting
    builder: Builder
    maintenance: Maintenance
    replaying: Replaying
    sources: SourceHosts | None = None
    """Beside the door."""
    outdated: Sequence[str] = ()
    """Stages of the generation that another version of this program made."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hosting.run())
            if self.sources is not None:
                group.create_task(self.sources.run())
            group.create_task(self.builder.run())
            group.create_task(self.maintenance.run())
            group.create_task(self.replaying.run())


@asynccontextmanager
async def prepare_worker(
    settings: Settings, dsn: str, *, stages: Sequence[Stage] = STAGES, overrides: Overrides = NONE, observer: Observer | None = None
) -> AsyncIterator[Worker]:
    """Raises GenerationMismatch where the settings ask for another index than the one that is there."""
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            prepare_storage(settings, dsn, pool_size=settings.database.worker_pool, name="anabranch worker", relaxed=True, overrides=overrides)
        )
        await forget_foreign_changes(storage.pool)
        if settings.log_kind == "postgres":
            await take_over_log(storage.pool)
        await check_current(storage, await destroy_again(storage.log, storage.codec, storage.pool, storage.key_file))
        generation, engines = await _agreed(settings, storage, overrides, stack)
        builds = await open_pool(dsn, size=BUILD_CONNECTIONS, name="anabranch builds", settings=RELAXED if settings.log_kind == "postgres" else None)
        stack.push_async_callback(close_pool, builds)
        shelf = EngineShelf(settings, overrides, observer or Silent(), stack)
        shelf.keep(generation.config, engines)
        stale = await shelf.outdated(generation)
        await stack.enter_async_context(warming(_used(engines, stages), models_folder(settings)))
        door = Door()
        hosting = Hosting(settings, storage, stages, generation, shelf, builds, observer or Silent(), overrides, storage.subscriber, door)
        decisions = Decisions(storage.log, storage.codec, overrides.clock, overrides.fresh_id)
        builder = Builder(storage, builds, tuple(dict.fromkeys((*STAGES, *stages))), decisions, hosting.keep_books)
        replaying = Replaying(storage, hosting.runners, overrides.clock, overrides.fresh_id())
        hosts_door = any(stage.name == "receive" for stage in stages)
        sources = source_hosts(settings, storage, door, overrides) if hosts_door else None
        yield Worker(generation, storage, hosting, builder, Maintenance(storage, builds, PrunedChanges(storage.pool)), replaying, sources, stale)


async def _agreed(settings: Settings, storage: Storage, overrides: Overrides, stack: AsyncExitStack) -> tuple[Generation, Engines]:
    """The live generation, made as the settings say where there is none, and its engines."""
    found = await _found(storage)
    if found is not None:
        settings = settings_of(settings, found.name)
    wanted = wanted_config(settings, found.config if found else None)
    engines = await stack.enter_async_context(prepare_engines(settings, wanted, overrides))
    return await agreed_generation(index_config(wanted, engines), storage, overrides), engines


async def _found(storage: Storage) -> Generation | None:
    return await current_generation(PgGenerations(storage.pool), storage.log, storage.codec)


async def agreed_generation(wanted: IndexConfig, storage: Storage, overrides: Overrides = NONE) -> Generation:
    """The live generation, made as wanted where there is none."""
    found = await _found(storage)
    if found is None:
        await publish_first(wanted, storage.log, storage.codec, overrides.clock)
        found = await _found(storage)
    assert found is not None
    check_same(wanted, found.config, found.name)
    return found


def _used(engines: Engines, stages: Sequence[Stage]) -> list[object]:
    """Of what can be loaded ahead, that which these stages need."""
    by_stage: dict[str, object] = {"transcribe": engines.parser, "embed": engines.embedder}
    return [by_stage[stage.name] for stage in stages if stage.name in by_stage]
