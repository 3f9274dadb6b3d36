"""Where things are kept: tables, log, blobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from anabranch.composition.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from anabranch.encryption.codec import TopicListingLog, build_codec, open_key_file
from anabranch.kafka.settings import build_kafka_settings, resolve_retention_ms, resolve_topic_partitions
from engines.blobs import open_blobs
from engines.disk import DiskReserve
from engines.temporary_folder import open_temporary_folder
from schemas.ports.engines import BlobStore
from schemas.ports.log import Subscriber
from schemas.records import Position
from services.storage import Storage
from sql.log import PgLog
from sql.log_reader import PgSubscriber
from sql.migrate import migrate
from sql.offset_store import PgOffsetStore
from sql.pool import ASYNC_COMMIT_SETTINGS, Pool, build_lock_timeout_settings, close_pool, open_pool
from streams.codec import Codec

LOG_EPOCH = 1


@asynccontextmanager
async def prepare_storage(
    settings: Settings,
    dsn: str,
    *,
    pool_size: int,
    name: str,
    relaxed_commits: bool = False,
    lock_wait_s: float | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> AsyncIterator[Storage]:
    """Migrated tables, existing topics, an open blob store. Any number of processes may prepare the same storage at once.

    `relaxed` is for stages: where log and tables are the same Postgres, a commit that a crash loses takes the reader's place with it. With `lock_wait_s` statements
    fail, with code TABLES_LOCKED, where somebody else's lock keeps them waiting for longer."""
    await migrate(dsn)
    options = ASYNC_COMMIT_SETTINGS if relaxed_commits and settings.log_kind == "postgres" else {}
    pool = await open_pool(dsn, size=pool_size, name=name, settings={**options, **(build_lock_timeout_settings(lock_wait_s) if lock_wait_s else {})})
    try:
        offset_store = PgOffsetStore(pool)
        log, subscriber = _open_log(settings, dsn, pool, offset_store)
        try:
            await log.create_topics(resolve_topic_partitions(settings), retention_ms=resolve_retention_ms(settings))
            key_file = await open_key_file(settings, pool)
            codec = await build_codec(settings, pool, log, key_file)
            with open_temporary_folder(settings.data_dir.resolve()) as temporary:
                blobs = overrides.blobs or open_blob_store(settings, temporary)
                yield Storage(dsn, pool, log, subscriber, blobs, codec, _build_stamp(settings), offset_store, tuple(settings.ingest.topics), key_file)
        finally:
            await log.close()
    finally:
        await close_pool(pool)


def open_unprepared_storage(settings: Settings, dsn: str, pool: Pool) -> Storage:
    """To look at what is there: nothing is migrated, no topic made, and sealed payloads stay closed. Closing its log is the caller's."""
    offset_store = PgOffsetStore(pool)
    log, subscriber = _open_log(settings, dsn, pool, offset_store)
    return Storage(dsn, pool, log, subscriber, open_blob_store(settings), Codec(), _build_stamp(settings), offset_store, tuple(settings.ingest.topics))


def open_blob_store(settings: Settings, temporary: Path | None = None) -> BlobStore:
    secret = settings.storage.secret_key
    return open_blobs(
        settings.storage.url or (Path(settings.data_dir).resolve() / "blobs").as_uri(),
        access_key=settings.storage.access_key,
        secret_key=secret.get_secret_value() if secret else None,
        region=settings.storage.region,
        temporary_dir=temporary,
    )


def build_disk_reserve(settings: Settings) -> DiskReserve:
    """Of the data folder's disk, and of the blob store's where that is a folder."""
    storage_url = urlsplit(settings.storage.url or "")
    folders = [settings.data_dir.resolve(), *([Path(unquote(storage_url.path))] if storage_url.scheme == "file" else [])]
    return DiskReserve(tuple(folders), settings.api.disk_reserve)


def _open_log(settings: Settings, dsn: str, pool: Pool, offset_store: PgOffsetStore) -> tuple[TopicListingLog, Subscriber]:
    if settings.log_kind == "postgres":
        return PgLog(pool), PgSubscriber(pool, dsn, owner=uuid4())
    from streams.kafka.kafka_log import KafkaLog
    from streams.kafka.subscriber import FaustSubscriber

    kafka = build_kafka_settings(settings.kafka)
    return KafkaLog(kafka), FaustSubscriber(kafka, session_timeout_s=settings.kafka.session_timeout_s, offset_store=offset_store)


def _build_stamp(settings: Settings) -> Callable[[Position, datetime], list[int]]:
    """The order of revisions: on the Postgres log its positions; on Kafka append time, then partition and offset."""
    if settings.log_kind == "postgres":
        return lambda position, appended_at: [LOG_EPOCH, position.offset]
    return lambda position, appended_at: [LOG_EPOCH, int(appended_at.timestamp() * 1000), position.partition, position.offset]
