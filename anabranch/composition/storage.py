"""Where things are kept: tables, log, blobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from anabranch.composition.overrides import NONE, Overrides
from anabranch.composition.sealing import ListedLog, open_key_file, sealing_codec
from anabranch.key_file import KeyFile
from anabranch.process.temporary import temporary_folder
from anabranch.settings import KafkaSettings as KafkaOptions
from anabranch.settings import Settings
from engines.blobs import open_blobs
from engines.disk import DiskReserve
from schemas.ports.engines import Blobs
from schemas.ports.log import EventLog, Subscriber
from schemas.records import Position
from sql.log import PgLog
from sql.log_reader import PgSubscriber
from sql.migrate import migrate
from sql.pool import RELAXED, Pool, close_pool, open_pool, waits_for_locks
from sql.reached import PgReached
from streams.codec import Codec
from streams.kafka.settings import KafkaSettings
from streams.topics import RAW, RETENTION_MS, partition_counts

LOG_EPOCH = 1


@dataclass(frozen=True, slots=True)
class Storage:
    dsn: str
    pool: Pool
    log: EventLog
    subscriber: Subscriber
    blobs: Blobs
    codec: Codec
    stamp: Callable[[Position, datetime], list[int]]
    reached: PgReached
    """By groups of Kafka; on the Postgres log cursors lie beside the tables anyway."""
    producer_topics: tuple[str, ...] = ()
    """Topics `raw.NAME`, each of one producer."""
    key_file: KeyFile | None = None

    async def waiting(self, group: str, topic: str, below: Mapping[int, int] | None = None) -> int:
        """How many records of the topic (those below the offsets of their partitions) the group has still to finish."""
        if isinstance(self.log, PgLog):
            return await self.log.lag(group, topic, (below or {}).get(0))
        ends, read = await self.log.ends(topic), await self.log.acknowledged(group, topic)
        return sum(max(0, _end(following, below, partition) - max(first, read.get(partition, first))) for partition, (first, following) in ends.items())

    async def records(self, topic: str, below: Mapping[int, int] | None = None) -> int:
        """How many the topic holds (below the offsets of its partitions)."""
        if isinstance(self.log, PgLog):
            return await self.log.lag("", topic, (below or {}).get(0))
        return sum(max(0, _end(following, below, partition) - first) for partition, (first, following) in (await self.log.ends(topic)).items())

    async def ends(self, topic: str) -> dict[int, int]:
        """Per partition the offset after the last record."""
        return {partition: following for partition, (_, following) in (await self.log.ends(topic)).items()}


def _end(following: int, below: Mapping[int, int] | None, partition: int) -> int:
    return following if below is None else min(following, below.get(partition, 0))


@asynccontextmanager
async def prepare_storage(
    settings: Settings,
    dsn: str,
    *,
    pool_size: int,
    name: str,
    relaxed: bool = False,
    lock_wait_s: float | None = None,
    overrides: Overrides = NONE,
) -> AsyncIterator[Storage]:
    """Migrated tables, existing topics, an open blob store. Any number of processes may prepare the same storage at once.

    `relaxed` is for stages: where log and tables are the same Postgres, a commit that a crash loses takes the reader's place with it. With `lock_wait_s` statements
    fail, with code TABLES_LOCKED, where somebody else's lock keeps them waiting for longer."""
    await migrate(dsn)
    options = RELAXED if relaxed and settings.log_kind == "postgres" else {}
    pool = await open_pool(dsn, size=pool_size, name=name, settings={**options, **(waits_for_locks(lock_wait_s) if lock_wait_s else {})})
    try:
        reached = PgReached(pool)
        log, subscriber = _log(settings, dsn, pool, reached)
        try:
            await log.create_topics(topics_of(settings), retention_ms=retention_of(settings))
            key_file = await open_key_file(settings, pool)
            codec = await sealing_codec(settings, pool, log, key_file)
            with temporary_folder(settings.data_dir.resolve()) as temporary:
                blobs = overrides.blobs or blobs_of(settings, temporary)
                yield Storage(dsn, pool, log, subscriber, blobs, codec, _stamp(settings), reached, tuple(settings.ingest.topics), key_file)
        finally:
            await log.close()
    finally:
        await close_pool(pool)


def unprepared_storage(settings: Settings, dsn: str, pool: Pool) -> Storage:
    """To look at what is there: nothing is migrated, no topic made, and sealed payloads stay closed. Closing its log is the caller's."""
    reached = PgReached(pool)
    log, subscriber = _log(settings, dsn, pool, reached)
    return Storage(dsn, pool, log, subscriber, blobs_of(settings), Codec(), _stamp(settings), reached, tuple(settings.ingest.topics))


def topics_of(settings: Settings) -> dict[str, int]:
    """Partitions of every topic, those of producers of their own included."""
    return partition_counts(settings.kafka.partitions) | dict.fromkeys(settings.ingest.topics, settings.kafka.partitions)


def retention_of(settings: Settings) -> dict[str, int]:
    return RETENTION_MS | dict.fromkeys(settings.ingest.topics, RETENTION_MS[RAW])


def blobs_of(settings: Settings, temporary: Path | None = None) -> Blobs:
    secret = settings.storage.secret_key
    return open_blobs(
        settings.storage.url or (Path(settings.data_dir).resolve() / "blobs").as_uri(),
        access_key=settings.storage.access_key,
        secret_key=secret.get_secret_value() if secret else None,
        region=settings.storage.region,
        temporary=temporary,
    )


def disk_reserve(settings: Settings) -> DiskReserve:
    """Of the data folder's disk, and of the blob store's where that is a folder."""
    place = urlsplit(settings.storage.url or "")
    folders = [settings.data_dir.resolve(), *([Path(unquote(place.path))] if place.scheme == "file" else [])]
    return DiskReserve(tuple(folders), settings.api.disk_reserve)


async def wait_for_kafka(settings: Settings) -> None:
    """Wait until Kafka answers, where it is the log. Raises LogUnavailable after `kafka.start_timeout_s`."""
    if settings.log_kind != "kafka":
        return
    from streams.kafka.log import KafkaLog

    log = KafkaLog(kafka_of(settings.kafka))
    try:
        await log.wait_until_reachable(settings.kafka.start_timeout_s)
    finally:
        await log.close()


def kafka_of(options: KafkaOptions) -> KafkaSettings:
    password = options.sasl_password
    return KafkaSettings(
        bootstrap_servers=options.bootstrap_servers or "",
        topic_prefix=options.topic_prefix,
        security_protocol=options.security_protocol,
        sasl_mechanism=options.sasl_mechanism,
        sasl_username=options.sasl_username,
        sasl_password=password.get_secret_value() if password else None,
        ssl_cafile=str(options.ssl_cafile) if options.ssl_cafile else None,
        ssl_certfile=str(options.ssl_certfile) if options.ssl_certfile else None,
        ssl_keyfile=str(options.ssl_keyfile) if options.ssl_keyfile else None,
    )


def _log(settings: Settings, dsn: str, pool: Pool, reached: PgReached) -> tuple[ListedLog, Subscriber]:
    if settings.log_kind == "postgres":
        return PgLog(pool), PgSubscriber(pool, dsn, owner=uuid4())
    from streams.kafka.log import KafkaLog
    from streams.kafka.worker import FaustSubscriber

    kafka = kafka_of(settings.kafka)
    return KafkaLog(kafka), FaustSubscriber(kafka, session_timeout_s=settings.kafka.session_timeout_s, reached=reached)


def _stamp(settings: Settings) -> Callable[[Position, datetime], list[int]]:
    """The order of revisions: on the Postgres log its positions; on Kafka append time, then partition and offset."""
    if settings.log_kind == "postgres":
        return lambda position, appended_at: [LOG_EPOCH, position.offset]
    return lambda position, appended_at: [LOG_EPOCH, int(appended_at.timestamp() * 1000), position.partition, position.offset]
