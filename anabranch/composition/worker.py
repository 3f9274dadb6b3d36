"""Compose a worker: consumers of every generation, builder, maintenance, replays and sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from anabranch.composition.sources import build_source_supervisor
from anabranch.composition.storage import prepare_storage
from anabranch.config.engines import (
    build_engine_opener,
    build_fetcher,
    build_limits,
    prepare_engines,
    resolve_models_folder,
)
from anabranch.config.index_config import build_index_config
from anabranch.config.loader import resolve_generation_settings
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from anabranch.encryption.codec import build_readable_check
from processors import STAGES
from schemas.generations import Generation
from schemas.ports.stage_ports import StagePorts
from services.engines import EngineRegistry, Engines, add_engine_fingerprints, warm_in_background
from services.erasure.eraser import DocumentEraser
from services.erasure.key_destruction import reapply_key_destruction
from services.erasure.withdrawal import DocumentCollectionDeleter
from services.generations.builder import GenerationBuilder
from services.generations.decisions import (
    GenerationDecisions,
    ensure_generation,
    find_current_generation,
)
from services.recovery.restore_check import check_tables_current
from services.replay.replay_worker import ReplayWorker
from services.sources.supervisor import SourceSupervisor
from services.storage import Storage
from services.worker.consumer_supervisor import ConsumerSupervisor
from services.worker.maintenance import Maintenance
from sql.catalog.collections import PgCollections
from sql.catalog.revisions import PgDocumentOwners, PgRevisions
from sql.database import ASYNC_COMMIT_SETTINGS, close_pool, open_pool
from sql.inbox.ledger import PgEngineResultCache
from sql.index.generations import PgGenerations
from sql.invalidation import IndexChangePruner, delete_foreign_changes
from sql.log.event_log import adopt_imported_log
from sql.operations.monitoring import PgProgress
from streams.retry import AttemptLimits
from streams.stage import Instrumentation, Stage

BUILD_POOL_SIZE = 6
"""The builder and up to two claims of each stage that loads rows."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A prepared worker. `generation` was the live one at start-up. `run` raises the error that
    stopped a stage.
    """

    settings: Settings
    overrides: Overrides
    generation: Generation
    storage: Storage
    consumers: ConsumerSupervisor
    builder: GenerationBuilder
    maintenance: Maintenance
    replay_worker: ReplayWorker
    sources: SourceSupervisor | None = None
    """None unless this worker runs stage `receive`."""
    outdated_stages: Sequence[str] = ()
    """Stages of `generation` that another version of this program built."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            # An error of one part ends all, so that the worker is restarted as a whole.
            group.create_task(self.consumers.run())
            if self.sources is not None:
                group.create_task(self.sources.run())
            group.create_task(self.builder.run())
            group.create_task(self.maintenance.run())
            group.create_task(self.replay_worker.run())


@asynccontextmanager
async def prepare_worker(
    settings: Settings,
    dsn: str,
    *,
    stages: Sequence[Stage] = STAGES,
    overrides: Overrides = NO_OVERRIDES,
    instrumentation: Instrumentation | None = None,
) -> AsyncIterator[Worker]:
    """Raise GenerationMismatch if the settings describe another index than the live one."""
    # One function: the worker is composed by hand, in the order in which its parts open.
    instrumentation = instrumentation or Instrumentation()
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            prepare_storage(
                settings,
                dsn,
                pool_size=settings.database.worker_pool,
                name="anabranch worker",
                for_stages=True,
                overrides=overrides,
            )
        )
        await _check_tables(settings, storage)
        # May publish the first generation, so only after the checks.
        generation, engines = await _prepare_generation(settings, storage, overrides, stack)
        build_pool = await open_pool(
            dsn,
            size=BUILD_POOL_SIZE,
            name="anabranch builds",
            settings=ASYNC_COMMIT_SETTINGS if settings.log_kind == "postgres" else None,
        )
        stack.push_async_callback(close_pool, build_pool)
        engine_registry = EngineRegistry(
            build_engine_opener(settings, overrides), instrumentation, stack
        )
        engine_registry.add(generation.config, engines)
        outdated_stages = await engine_registry.find_outdated_stages(generation)
        by_stage: dict[str, object] = {"transcribe": engines.parser, "embed": engines.embedder}
        await stack.enter_async_context(
            warm_in_background(
                [by_stage[stage.name] for stage in stages if stage.name in by_stage],
                resolve_models_folder(settings),
            )
        )
        source_epochs = dict[str, int]()
        consumers = ConsumerSupervisor(
            storage,
            stages,
            generation,
            engine_registry,
            build_pool,
            instrumentation,
            lambda target, engines: build_ports(
                settings, storage, target, engines, overrides, source_epochs
            ),
            overrides.clock,
            AttemptLimits(failed=settings.worker.attempts, abandoned=settings.worker.lost_attempts),
            storage.subscriber,
        )
        decisions = GenerationDecisions(
            storage.log, storage.codec, overrides.clock, overrides.fresh_id
        )
        builder = GenerationBuilder(
            storage,
            build_pool,
            # A build waits for all stages, whichever this worker runs.
            tuple(dict.fromkeys((*STAGES, *stages))),
            decisions,
            consumers.sync_builds,
        )
        replay_worker = ReplayWorker(
            storage, consumers.list_runners, overrides.clock, overrides.fresh_id()
        )
        hosts_ingress = any(stage.name == "receive" for stage in stages)
        sources = (
            build_source_supervisor(settings, storage, source_epochs, overrides)
            if hosts_ingress
            else None
        )
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


async def _check_tables(settings: Settings, storage: Storage) -> None:
    """Bring tables of a restored dump up to the log, or raise what `check_tables_current` does."""
    # Left by a restored dump, they would keep answers of their tenants from being cached.
    await delete_foreign_changes(storage.pool)
    if settings.log_kind == "postgres":
        # Before any reader starts: imported records lie above the snapshot horizon.
        await adopt_imported_log(storage.pool)
    # Before anything is consumed: reading on would hide what the tables lack.
    reapplied = await reapply_key_destruction(
        storage.log, storage.codec, storage.pool, storage.key_file
    )
    await check_tables_current(storage, reapplied)


async def _prepare_generation(
    settings: Settings, storage: Storage, overrides: Overrides, stack: AsyncExitStack
) -> tuple[Generation, Engines]:
    """Return the live generation and its engines. If there is none, the settings make the first
    one.
    """
    live = await find_current_generation(PgGenerations(storage.pool), storage.log, storage.codec)
    if live is not None:
        settings = resolve_generation_settings(settings, live.name)
    target = build_index_config(settings, live.config if live else None)
    engines = await stack.enter_async_context(prepare_engines(settings, target, overrides))
    return await ensure_generation(
        add_engine_fingerprints(target, engines), storage, overrides.clock
    ), engines


def build_ports(
    settings: Settings,
    storage: Storage,
    generation: Generation,
    engines: Engines,
    overrides: Overrides,
    source_epochs: dict[str, int],
) -> StagePorts:
    ingest = settings.ingest
    return StagePorts(
        generation=generation,
        blobs=storage.blobs,
        memo=PgEngineResultCache(storage.pool),
        fetcher=overrides.fetcher or build_fetcher(ingest, storage.blobs),
        parser=engines.parser,
        chunker=engines.chunker,
        extractor=engines.extractor,
        embedder=engines.embedder,
        language_detector=engines.languages,
        latest_revisions=PgRevisions(storage.pool),
        limits=build_limits(ingest),
        assign_order=storage.log.assign_order,
        source_epochs=source_epochs,
        progress=PgProgress(storage.pool, generation.name),
        parallel_extractions=settings.extract.parallel,
        owners=PgDocumentOwners(storage.pool),
        collections=PgCollections(storage.pool),
        eraser=DocumentEraser(
            storage,
            overrides.clock,
            build_readable_check(settings),
            # Only buckets can keep versions of deleted objects.
            (settings.storage.url or "").startswith("s3:"),
        ),
        collection_deleter=DocumentCollectionDeleter(storage, overrides.clock),
        generation_switches=PgRevisions(storage.pool),
    )
