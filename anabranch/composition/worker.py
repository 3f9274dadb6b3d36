"""A worker: stages of the live generation, reading the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from anabranch.composition.engines import Engines, models_folder, prepare_engines
from anabranch.composition.genesis import current_generation, publish_first
from anabranch.composition.overrides import NONE, Overrides
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.indexing import check_same, index_config, wanted_config
from anabranch.maintenance import Maintenance
from anabranch.outcome_log import OutcomeLog
from anabranch.settings import Settings
from anabranch.warming import warming
from engines.fetch import HttpFetcher
from processors import STAGES
from schemas.errors import TransientError
from schemas.generations import Generation, IndexConfig
from schemas.ports.bundle import Limits, Ports
from schemas.ports.ledger import Counts
from sql.generations import PgGenerations
from sql.ledger import PgLedger
from sql.memo import PgMemo
from sql.revisions import PgRevisions
from streams.codec import Codec
from streams.hosting import Host
from streams.observe import Observer, Silent
from streams.publisher import Publisher
from streams.runner import Runner
from streams.stage import Stage
from streams.submission import SOURCE

log = structlog.get_logger(__name__)
OF_A_GENERATION: tuple[Counts, ...] = ("latest", "visible")
MADE_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Worker:
    """`run` returns only by being cancelled, or raises what stopped a stage."""

    generation: Generation
    storage: Storage
    hosts: Sequence[Host]
    maintenance: Maintenance

    async def run(self) -> None:
        """Stages that write into the generation's tables begin when stage `control`, here or in another worker, has made them."""
        made = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for host in self.hosts:
                group.create_task(_after(made, host) if host.runner.stage.counts in OF_A_GENERATION else host.run())
            await self._made()
            made.set()
            group.create_task(self.maintenance.run())

    async def _made(self) -> None:
        log.debug("waiting until stage control has made the tables", generation=self.generation.name)
        while not await self._is_made():
            await asyncio.sleep(MADE_POLL_S)

    async def _is_made(self) -> bool:
        try:
            return await PgGenerations(self.storage.pool).get(self.generation.name) is not None
        except TransientError:
            return False


async def _after(event: asyncio.Event, host: Host) -> None:
    await event.wait()
    await host.run()


@asynccontextmanager
async def prepare_worker(
    settings: Settings, dsn: str, *, stages: Sequence[Stage] = STAGES, overrides: Overrides = NONE, observer: Observer | None = None
) -> AsyncIterator[Worker]:
    """Raises GenerationMismatch where the settings ask for another index than the one that is there."""
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            prepare_storage(settings, dsn, pool_size=settings.database.worker_pool, name="anabranch worker", relaxed=True, overrides=overrides)
        )
        found = await _found(storage)
        wanted = wanted_config(settings, found.config if found else None)
        engines = await stack.enter_async_context(prepare_engines(settings, wanted, overrides))
        generation = await agreed_generation(index_config(wanted, engines), storage, overrides)
        ports = _ports(settings, storage, generation, engines, overrides)
        hosts = [_host(stage, storage, generation, ports, observer or Silent(), overrides) for stage in stages]
        await stack.enter_async_context(warming(_used(engines, stages), models_folder(settings)))
        yield Worker(generation, storage, hosts, Maintenance(storage, generation))


async def _found(storage: Storage) -> Generation | None:
    return await current_generation(PgGenerations(storage.pool), storage.log, Codec())


async def agreed_generation(wanted: IndexConfig, storage: Storage, overrides: Overrides = NONE) -> Generation:
    """The live generation, made as wanted where there is none."""
    found = await _found(storage)
    if found is None:
        await publish_first(wanted, storage.log, Codec(), overrides.clock)
        found = await _found(storage)
    assert found is not None
    check_same(wanted, found.config, found.name)
    return found


def _used(engines: Engines, stages: Sequence[Stage]) -> list[object]:
    """Of what can be loaded ahead, that which these stages need."""
    by_stage: dict[str, object] = {"transcribe": engines.parser, "embed": engines.embedder}
    return [by_stage[stage.name] for stage in stages if stage.name in by_stage]


def _host(stage: Stage, storage: Storage, generation: Generation, ports: Ports, observer: Observer, overrides: Overrides) -> Host:
    codec = Codec()
    runner = Runner(
        stage, PgLedger(storage.pool, generation), OutcomeLog(storage.log), ports, Publisher(stage.name, generation, codec, overrides.clock), codec, observer
    )
    return Host(runner, storage.subscriber, generation.topics.get(stage.topic, stage.topic))


def _ports(settings: Settings, storage: Storage, generation: Generation, engines: Engines, overrides: Overrides) -> Ports:
    ingest = settings.ingest
    fetcher = overrides.fetcher or HttpFetcher(storage.blobs, allow=frozenset(ingest.url_allow), max_bytes=ingest.max_bytes, timeout_s=ingest.fetch_timeout_s)
    return Ports(
        generation=generation,
        blobs=storage.blobs,
        memo=PgMemo(storage.pool),
        fetcher=fetcher,
        parser=engines.parser,
        chunker=engines.chunker,
        extractor=engines.extractor,
        embedder=engines.embedder,
        languages=engines.languages,
        revisions=PgRevisions(storage.pool),
        limits=Limits(ingest.max_bytes, ingest.inline_bytes, ingest.max_pages, _sources(settings)),
        stamp=storage.stamp,
    )


def _sources(settings: Settings) -> dict[str, frozenset[str]]:
    """Our own API always may; where nobody is named, everybody may."""
    named = {source: frozenset(tenants) for source, tenants in settings.ingest.sources.items()}
    return {**named, SOURCE: frozenset({"default"})} if named else {}
