"""Open tables, log, blob store and codec."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from anabranch.config.engines import open_blob_store
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from anabranch.encryption.codec import build_codec, open_key_file
from anabranch.kafka.settings import open_kafka, resolve_retention_ms, resolve_topic_partitions
from engines.disk import open_temporary_folder
from processors import EVENT_CLASSES
from schemas.ports.log import EventLog, Subscriber
from services.recovery.table_recovery import RecoveryReport, recover_tables
from services.storage import Storage
from sql.database import (
    ASYNC_COMMIT_SETTINGS,
    STAGE_SETTINGS,
    Pool,
    build_lock_timeout_settings,
    use_pool,
)
from sql.log.event_log import PgLog
from sql.log.offset_store import PgOffsetStore
from sql.log.reader import PgSubscriber
from sql.operations.migrate import migrate
from streams.codec import Codec

RECOVERY_POOL_SIZE = 4


@asynccontextmanager
async def prepare_storage(
    settings: Settings,
    dsn: str,
    *,
    pool_size: int,
    name: str,
    for_stages: bool = False,
    lock_wait_s: float | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> AsyncIterator[Storage]:
    """Migrate the tables, create the topics and open everything. Any number of processes may do so
    at once.

    With `for_stages`, connections have the settings that suit the statements of stages. With
    `lock_wait_s`, a statement that waits longer for a lock fails with code TABLES_LOCKED.
    """
    await migrate(dsn)
    options: dict[str, str] = {}
    if for_stages:
        options |= STAGE_SETTINGS
        # On Kafka the offset lies elsewhere, so a lost commit would be a gap in the tables.
        options |= ASYNC_COMMIT_SETTINGS if settings.log_kind == "postgres" else {}
    async with use_pool(
        dsn,
        size=pool_size,
        name=name,
        settings={**options, **(build_lock_timeout_settings(lock_wait_s) if lock_wait_s else {})},
    ) as pool:
        offset_store = PgOffsetStore(pool)
        log, subscriber = _open_log(settings, dsn, pool, offset_store)
        try:
            await log.create_topics(
                resolve_topic_partitions(settings), retention_ms=resolve_retention_ms(settings)
            )
            key_file = await open_key_file(settings, pool)
            # Needs the topics: it reads whether the log began with signed events.
            codec = await build_codec(settings, pool, log, key_file)
            with open_temporary_folder(settings.data_dir.resolve()) as temporary:
                blobs = overrides.blobs or open_blob_store(settings, temporary)
                yield Storage(
                    dsn,
                    pool,
                    log,
                    subscriber,
                    blobs,
                    codec,
                    offset_store,
                    tuple(settings.ingest.topics),
                    key_file,
                )
        finally:
            await log.close()


async def recover_database(settings: Settings, dsn: str) -> RecoveryReport | None:
    """Prepare the storage and fill its tables from the log; see `recover_tables`."""
    async with prepare_storage(
        settings, dsn, pool_size=RECOVERY_POOL_SIZE, name="anabranch rebuild", for_stages=True
    ) as storage:
        return await recover_tables(storage)


def open_unprepared_storage(settings: Settings, dsn: str, pool: Pool) -> Storage:
    """Open the storage for inspection: no migration, no topics, no decryption. The caller closes
    the log.
    """
    offset_store = PgOffsetStore(pool)
    log, subscriber = _open_log(settings, dsn, pool, offset_store)
    return Storage(
        dsn,
        pool,
        log,
        subscriber,
        open_blob_store(settings),
        Codec(event_classes=EVENT_CLASSES),
        offset_store,
        tuple(settings.ingest.topics),
    )


def _open_log(
    settings: Settings, dsn: str, pool: Pool, offset_store: PgOffsetStore
) -> tuple[EventLog, Subscriber]:
    if settings.log_kind == "postgres":
        # A new owner for each process: the leases of a killed one expire.
        return PgLog(pool), PgSubscriber(pool, dsn, owner=uuid4())
    return open_kafka(settings, offset_store)
