"""A worker: stages of every generation, reading the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from anabranch.composition.engines import build_engine_opener, prepare_engines, resolve_models_folder
from anabranch.composition.overrides import NO_OVERRIDES, Overrides
from anabranch.composition.ports import build_ports
from anabranch.composition.sources import build_source_supervisor
from anabranch.composition.storage import prepare_storage
from anabranch.config.generation_overrides import resolve_generation_settings
from anabranch.config.index_config import build_index_config
from anabranch.config.settings import Settings
from processors import STAGES
from schemas.generations import Generation, IndexConfig
from services.engine_set import Engines
from services.engine_warmup import warm_in_background
from services.erasure.key_destruction import reapply_key_destruction
from services.generations.builder import GenerationBuilder
from services.generations.decisions import GenerationDecisions
from services.generations.first_generation import find_current_generation, publish_first_generation
from services.index_comparison import add_engine_fingerprints, check_config_matches
from services.recovery.restore_check import check_tables_current
from services.replay.replay_worker import ReplayWorker
from services.sources.supervisor import SourceEpochs, SourceSupervisor
from services.storage import Storage
from services.worker.consumer_supervisor import ConsumerSupervisor
from services.worker.engine_registry import EngineRegistry
from services.worker.maintenance import Maintenance
from sql.generations import PgGenerations
from sql.invalidation import IndexChangePruner, delete_foreign_changes
from sql.log_import import adopt_imported_log
from sql.pool import ASYNC_COMMIT_SETTINGS, close_pool, open_pool
from streams.instrumentation import Instrumentation, NoInstrumentation
from streams.stage import Stage

BUILD_POOL_SIZE = 4


@dataclass(frozen=True, slots=True)
class Worker:
    """`generation` is the one that answered when the worker was prepared. `run` returns only by being cancelled, or raises what stopped a stage."""

    settings: Settings
    overrides: Overrides
    generation: Generation
    storage: Storage
    consumers: ConsumerSupervisor
    builder: GenerationBuilder
    maintenance: Maintenance
    replay_worker: ReplayWorker
    sources: SourceSupervisor | None = None
    """Beside the door."""
    outdated_stages: Sequence[str] = ()
    """Stages of the generation that another version of this program made."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.consumers.run())
            if self.sources is not None:
                group.create_task(self.sources.run())
            group.create_task(self.builder.run())
            group.create_task(self.maintenance.run())
            group.create_task(self.replay_worker.run())


@asynccontextmanager
async def prepare_worker(
    settings: Settings, dsn: str, *, stages: Sequence[Stage] = STAGES, overrides: Overrides = NO_OVERRIDES, instrumentation: Instrumentation | None = None
) -> AsyncIterator[Worker]:
    """Raises GenerationMismatch where the settings ask for another index than the one that is there."""
    instrumentation = instrumentation or NoInstrumentation()
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            prepare_storage(settings, dsn, pool_size=settings.database.worker_pool, name="anabranch worker", relaxed_commits=True, overrides=overrides)
        )
        await delete_foreign_changes(storage.pool)
        if settings.log_kind == "postgres":
            await adopt_imported_log(storage.pool)
        await check_tables_current(storage, await reapply_key_destruction(storage.log, storage.codec, storage.pool, storage.key_file))
        generation, engines = await _prepare_generation(settings, storage, overrides, stack)
        build_pool = await open_pool(
            dsn, size=BUILD_POOL_SIZE, name="anabranch builds", settings=ASYNC_COMMIT_SETTINGS if settings.log_kind == "postgres" else None
        )
        stack.push_async_callback(close_pool, build_pool)
        engine_registry = EngineRegistry(build_engine_opener(settings, overrides), instrumentation, stack)
        engine_registry.add(generation.config, engines)
        outdated_stages = await engine_registry.find_outdated_stages(generation)
        await stack.enter_async_context(warm_in_background(_select_used_engines(engines, stages), resolve_models_folder(settings)))
        source_epochs = SourceEpochs()
        consumers = ConsumerSupervisor(
            storage,
            stages,
            generation,
            engine_registry,
            build_pool,
            instrumentation,
            lambda target, engines: build_ports(settings, storage, target, engines, overrides, source_epochs),
            overrides.clock,
            settings.worker.lost_attempts,
            storage.subscriber,
        )
        decisions = GenerationDecisions(storage.log, storage.codec, overrides.clock, overrides.fresh_id)
        builder = GenerationBuilder(storage, build_pool, tuple(dict.fromkeys((*STAGES, *stages))), decisions, consumers.sync_builds)
        replay_worker = ReplayWorker(storage, consumers.list_runners, overrides.clock, overrides.fresh_id())
        hosts_ingress = any(stage.name == "receive" for stage in stages)
        sources = build_source_supervisor(settings, storage, source_epochs, overrides) if hosts_ingress else None
        yield Worker(
            settings,
            overrides,
            generation,
            storage,
            consumers,
            builder,
            Maintenance(storage, build_pool, IndexChangePruner(storage.pool)),
            replay_worker,
            sources,
            outdated_stages,
        )


async def _prepare_generation(settings: Settings, storage: Storage, overrides: Overrides, stack: AsyncExitStack) -> tuple[Generation, Engines]:
    """The live generation, made as the settings say where there is none, and its engines."""
    generation = await _find_generation(storage)
    if generation is not None:
        settings = resolve_generation_settings(settings, generation.name)
    target = build_index_config(settings, generation.config if generation else None)
    engines = await stack.enter_async_context(prepare_engines(settings, target, overrides))
    return await ensure_generation(add_engine_fingerprints(target, engines), storage, overrides), engines


async def _find_generation(storage: Storage) -> Generation | None:
    return await find_current_generation(PgGenerations(storage.pool), storage.log, storage.codec)


async def ensure_generation(target: IndexConfig, storage: Storage, overrides: Overrides = NO_OVERRIDES) -> Generation:
    """The live generation, made as wanted where there is none."""
    generation = await _find_generation(storage)
    if generation is None:
        await publish_first_generation(target, storage.log, storage.codec, overrides.clock)
        generation = await _find_generation(storage)
    assert generation is not None
    check_config_matches(target, generation.config, generation.name)
    return generation


def _select_used_engines(engines: Engines, stages: Sequence[Stage]) -> list[object]:
    """Of what can be loaded ahead, that which these stages need."""
    by_stage: dict[str, object] = {"transcribe": engines.parser, "embed": engines.embedder}
    return [by_stage[stage.name] for stage in stages if stage.name in by_stage]
