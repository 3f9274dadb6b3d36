"""Source service, source readers and configurations of new generations, from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from anabranch.config.engines import build_fetcher, prepare_engines
from anabranch.config.index_config import build_index_config, check_index_settings
from anabranch.config.loader import (
    load_overrides,
    override_settings,
    resolve_generation_settings,
    store_overrides,
)
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from anabranch.identity.approvals import check_settings_approved, load_allowed_folders
from anabranch.kafka.settings import open_kafka
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.generations import Generation, IndexConfig
from schemas.ports.log import EventLog, Subscriber
from services.engines import Engines, add_engine_fingerprints
from services.generations.decisions import GenerationDecisions
from services.generations.reindex import ReindexService
from services.publishing import EventPublisher
from services.sources.service import SourceService
from services.sources.supervisor import SourceReaderFactory, SourceSupervisor
from services.storage import Storage


def build_source_service(
    settings: Settings, storage: Storage, publisher: EventPublisher
) -> SourceService:
    factory = _build_factory(settings, storage, publisher.clock)
    return SourceService(
        publisher,
        factory.declarations,
        factory.fetch_ends,
        settings.log_kind == "kafka",
        factory.list_allowed_folders,
        settings.ingest.sources,
    )


def build_source_supervisor(
    settings: Settings, storage: Storage, source_epochs: dict[str, int], overrides: Overrides
) -> SourceSupervisor:
    factory = _build_factory(settings, storage, overrides.clock)
    return SourceSupervisor(
        factory.declarations,
        factory.store,
        factory.open,
        factory.wait_until_caught_up,
        factory.close_down,
        uuid4(),
        source_epochs,
    )


def _build_factory(
    settings: Settings, storage: Storage, clock: Callable[[], datetime]
) -> SourceReaderFactory:
    return SourceReaderFactory(
        storage,
        clock,
        settings.sources,
        lambda: load_allowed_folders(settings.ingest.folders, settings.data_dir),
        lambda: build_fetcher(settings.ingest, storage.blobs),
        settings.ingest.max_bytes,
        settings.ingest.inline_bytes,
        settings.kafka.topic_prefix,
        lambda: _open_change_topics(settings, storage),
    )


@asynccontextmanager
async def _open_change_topics(
    settings: Settings, storage: Storage
) -> AsyncIterator[tuple[EventLog, Subscriber]]:
    """Open topics by the names that the broker has. On the Postgres log they are topics of the same
    log.
    """
    if settings.log_kind == "postgres":
        yield storage.log, storage.subscriber
        return
    topics, subscriber = open_kafka(settings, storage.offset_store, topic_prefix="")
    try:
        yield topics, subscriber
    finally:
        await topics.close()


@dataclass(frozen=True, slots=True)
class SettingsReindexTargets:
    settings: Settings
    overrides: Overrides

    @asynccontextmanager
    async def open_target(
        self, live: Generation, assignments: Sequence[str]
    ) -> AsyncIterator[tuple[IndexConfig, Engines]]:
        # First: a caller could name a server of its own, to which keys would be sent.
        check_settings_approved(self.settings.data_dir, assignments)
        async with AsyncExitStack() as stack:
            try:
                settings = override_settings(
                    resolve_generation_settings(self.settings, live.name), assignments
                )
                check_index_settings(assignments)
                target = build_index_config(settings, live.config)
                engines = await stack.enter_async_context(
                    prepare_engines(settings, target, self.overrides)
                )
                config = add_engine_fingerprints(target, engines)
            except ConfigurationError as error:
                # At start-up this would be the operator's mistake; here it is the client's.
                raise InvalidRequest(error.detail, code=error.code, remedy=error.remedy) from error
            yield config, engines

    def store_settings(self, name: str, live: str, assignments: Sequence[str] = ()) -> None:
        store_overrides(self.settings, name, [*load_overrides(self.settings, live), *assignments])


def build_reindex_service(
    settings: Settings,
    storage: Storage,
    decisions: GenerationDecisions,
    overrides: Overrides = NO_OVERRIDES,
) -> ReindexService:
    return ReindexService(
        storage, decisions, SettingsReindexTargets(settings, overrides), settings.kafka.partitions
    )
