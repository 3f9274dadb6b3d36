"""Source service and source readers, from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import uuid4

from anabranch.config.engines import build_fetcher
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.identity.approvals import load_allowed_folders
from anabranch.kafka.settings import open_kafka
from schemas.ports.log import EventLog, Subscriber
from services.sources.reader_factory import SourceReaderFactory
from services.sources.service import SourceService
from services.sources.supervisor import SourceEpochs, SourceSupervisor
from services.storage import Storage


def build_source_service(
    settings: Settings, storage: Storage, overrides: Overrides
) -> SourceService:
    factory = _build_factory(settings, storage, overrides.clock)
    return SourceService(
        storage.log,
        storage.codec,
        factory.declarations,
        factory.fetch_ends,
        settings.log_kind == "kafka",
        factory.list_allowed_folders,
        settings.ingest.sources,
        overrides.clock,
        overrides.fresh_id,
    )


def build_source_supervisor(
    settings: Settings, storage: Storage, source_epochs: SourceEpochs, overrides: Overrides
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
