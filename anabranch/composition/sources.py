"""Readers of sources, over the real storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from anabranch.approvals import allowed_folders
from anabranch.background.source_hosting import Door, Reader, SourceHosts
from anabranch.composition.overrides import Overrides
from anabranch.composition.readers import readers
from anabranch.composition.storage import Storage, kafka_of
from anabranch.desk.sourcing import LogSources, check_folder, check_table, setting_of
from anabranch.settings import Settings
from engines.fetch import HttpFetcher
from processors import STAGES
from schemas.errors import ConfigurationError
from schemas.events import DocumentWithdrawn
from schemas.ids import document_id
from schemas.ports.log import EventLog, Subscriber
from schemas.records import Record
from schemas.sources import DebeziumSource, DeclaredSource, FolderSource, PostgresSource, RowMapping, SourceSpec, UrlsSource
from sql.generations import PgGenerations
from sql.slot import PgChangeReader
from sql.source_state import PgSourceStore
from sql.sources import PgSources
from streams.runner import Patience
from streams.sources.applying import Applier
from streams.sources.burying import Undertaker
from streams.sources.delivery import Delivery
from streams.sources.folder import FolderReader
from streams.sources.known import STATUS, KnownItems
from streams.sources.table import TableReader
from streams.sources.topic import TopicReader
from streams.sources.urls import UrlsReader
from streams.submission import submission

PAGE = 500
CAUGHT_UP_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Readers:
    """Opens a reader for a declared source."""

    settings: Settings
    storage: Storage
    clock: Callable[[], datetime]

    @property
    def store(self) -> PgSourceStore:
        return PgSourceStore(self.storage.pool)

    @property
    def declared(self) -> PgSources:
        return PgSources(self.storage.pool)

    @asynccontextmanager
    async def open(self, source: DeclaredSource) -> AsyncIterator[Reader]:
        match source.spec.takes:
            case DebeziumSource() as topic:
                async with self._topics() as (topics, subscriber):
                    yield await self._of_topic(source, topic, topics, subscriber)
            case PostgresSource() as table:
                reader = self._changes(source.spec, table)
                try:
                    yield TableReader(source, table, self._applier(source.spec, table.mapping), self.store, reader)
                finally:
                    await reader.close()
            case FolderSource() as folder:
                within = self.allowed_folders()
                check_folder(folder, within)
                yield FolderReader(folder, self._known(source), self.storage.blobs, self.settings.ingest.max_bytes, self.clock, within)
            case UrlsSource() as urls:
                yield UrlsReader(urls, self._known(source), self._web(), self.clock)

    async def caught_up(self, source: DeclaredSource) -> None:
        """At once where the source has a memory. Else when every stage that leads to an answer has passed what its topic holds now: in a database that is
        just being made again from the log, everything would look new."""
        if await self.store.remembers(source.spec.name):
            return
        found = readers(await PgGenerations(self.storage.pool).undropped(), STAGES)
        waited_for = [reader for reader in found if reader.stage.essential and not reader.stage.shared and not reader.silent]
        barriers = {reader.topic: await self.storage.ends(reader.topic) for reader in waited_for}
        for reader in waited_for:
            while await self.storage.waiting(reader.group, reader.topic, barriers[reader.topic]):
                await asyncio.sleep(CAUGHT_UP_POLL_S)

    async def close_down(self, source: DeclaredSource) -> None:
        """A removed source: its slot goes, its documents if they shall, and what was remembered of it."""
        if isinstance(source.spec.takes, PostgresSource):
            await self._drop_slot(source.spec, source.spec.takes)
        if source.withdraw:
            await self._withdraw_all(source.spec)
        await self.store.forget(source.spec.name)

    async def _drop_slot(self, spec: SourceSpec, table: PostgresSource) -> None:
        """Where nobody says what the address is, and nothing was read, there is none of ours."""
        if self._dsn(spec) is None and set(await self.store.notes(spec.name)) <= {STATUS}:
            return
        reader = self._changes(spec, table)
        try:
            await reader.drop()
        finally:
            await reader.close()

    async def _withdraw_all(self, spec: SourceSpec) -> None:
        after = ""
        while names := await self.declared.documents(spec.ce_source, after, PAGE):
            await self.storage.log.append([await self._last(spec, name) for name in names])
            after = names[-1]

    async def _last(self, spec: SourceSpec, external_id: str) -> Record:
        """By the document's id, as through the API: after whatever its source said last."""
        identity = document_id(spec.tenant, spec.ce_source, external_id)
        data = DocumentWithdrawn(tenant=spec.tenant, document_id=str(identity), reason="its source was removed")
        return await submission(data, f"removed/{spec.name}/{identity}/{uuid4()}", time=self.clock(), codec=self.storage.codec, document=identity)

    async def _of_topic(self, source: DeclaredSource, takes: DebeziumSource, topics: EventLog, subscriber: Subscriber) -> TopicReader:
        spec = source.spec
        group = f"{self.settings.kafka.topic_prefix}anabranch.source.{spec.name}.{await self.store.reader(spec.name)}"
        undertaker = Undertaker(spec, self.storage.codec, self.storage.blobs, self.storage.log, self.clock)
        return TopicReader(source, takes, self._applier(spec, takes.mapping), topics, subscriber, group, undertaker, self.store, Patience())

    @asynccontextmanager
    async def _topics(self) -> AsyncIterator[tuple[EventLog, Subscriber]]:
        """Topics by the names that the broker has. On the Postgres log they lie beside ours."""
        if self.settings.log_kind == "postgres":
            yield self.storage.log, self.storage.subscriber
            return
        from streams.kafka.log import KafkaLog
        from streams.kafka.worker import FaustSubscriber

        foreign = replace(kafka_of(self.settings.kafka), topic_prefix="")
        topics = KafkaLog(foreign)
        try:
            yield topics, FaustSubscriber(foreign, session_timeout_s=self.settings.kafka.session_timeout_s, reached=self.storage.reached)
        finally:
            await topics.close()

    async def ends(self, topic: str) -> dict[int, int]:
        """Where a change topic ends now, by partition. Raises ConfigurationError where there is none of the name."""
        async with self._topics() as (topics, _):
            return {partition: end for partition, (_, end) in (await topics.ends(topic)).items()}

    def _changes(self, spec: SourceSpec, table: PostgresSource) -> PgChangeReader:
        check_table(table)
        dsn = self._dsn(spec)
        if dsn is None:
            remedy = f"Set {setting_of(spec.name)} of the worker to its address."
            raise ConfigurationError(f"nobody says where the database of source {spec.name} is", code="SOURCE_ADDRESS", remedy=remedy)
        return PgChangeReader(dsn, *table.place, slot_name(spec.name, table))

    def _dsn(self, spec: SourceSpec) -> str | None:
        """Read the database URL from the settings only: declaring a source does not permit choosing a database."""
        secret = self.settings.sources.get(spec.name.replace("-", "_"))
        return secret.get_secret_value() if secret else None

    def allowed_folders(self) -> list[Path]:
        """Whoever may declare a source does not choose which files of this machine are read."""
        return allowed_folders(self.settings.ingest.folders, self.settings.data_dir)

    def _applier(self, spec: SourceSpec, mapping: RowMapping) -> Applier:
        return Applier(self.store, self._delivery(spec), mapping, self.storage.log)

    def _delivery(self, spec: SourceSpec) -> Delivery:
        return Delivery(spec, self.storage.codec, self.storage.blobs, self.clock)

    def _known(self, source: DeclaredSource) -> KnownItems:
        return KnownItems(source, self.store, self.declared, self._delivery(source.spec), self.storage.log, self.clock)

    def _web(self) -> HttpFetcher:
        ingest = self.settings.ingest
        return HttpFetcher(self.storage.blobs, allow=frozenset(ingest.url_allow), max_bytes=ingest.max_bytes, timeout_s=ingest.fetch_timeout_s)


def slot_name(name: str, table: PostgresSource) -> str:
    return table.slot or f"anabranch_{name}".replace("-", "_")


def sourcing(settings: Settings, storage: Storage, overrides: Overrides) -> LogSources:
    ours = Readers(settings, storage, overrides.clock)
    has_kafka = settings.log_kind == "kafka"
    return LogSources(
        *(storage.log, storage.codec, ours.declared, ours.ends, has_kafka, ours.allowed_folders, settings.ingest.sources), overrides.clock, overrides.fresh_id
    )


def source_hosts(settings: Settings, storage: Storage, door: Door, overrides: Overrides) -> SourceHosts:
    """What the worker with the door hosts beside it."""
    ours = Readers(settings, storage, overrides.clock)
    return SourceHosts(ours.declared, ours.store, ours.open, ours.caught_up, ours.close_down, uuid4(), door)
