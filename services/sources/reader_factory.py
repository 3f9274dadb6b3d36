"""Open readers for declared sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from processors import STAGES
from schemas.errors import ConfigurationError
from schemas.events import DocumentWithdrawn
from schemas.ids import make_document_id
from schemas.ports.log import EventLog, Subscriber
from schemas.ports.sources import UrlRevisitor
from schemas.records import Record
from schemas.sources import (
    DebeziumSource,
    DeclaredSource,
    FolderSource,
    PostgresSource,
    RowMapping,
    SourceSpec,
    UrlsSource,
)
from services.generations.stage_assignments import assign_stages
from services.sources.service import check_folder, check_table, format_dsn_setting
from services.sources.supervisor import SourceReader
from services.storage import Storage
from sql.catalog.sources import PgSources, PgSourceStore
from sql.index.generations import PgGenerations
from sql.log.replication_slot import PgChangeReader
from streams.publisher import build_raw_record
from streams.retry import Backoff
from streams.sources.change_applier import ChangeApplier
from streams.sources.change_dead_letters import ChangeDeadLetters
from streams.sources.folder_reader import FolderReader
from streams.sources.item_state import STATUS_KEY, ItemStates
from streams.sources.raw_producer import MAX_INLINE_BYTES, RawProducer
from streams.sources.table_reader import TableReader
from streams.sources.topic_reader import TopicReader
from streams.sources.urls_reader import UrlsReader

PAGE_SIZE = 500
CAUGHT_UP_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class SourceReaderFactory:
    storage: Storage
    clock: Callable[[], datetime]
    dsns: Mapping[str, SecretStr]
    """Database URLs by source name, dashes replaced by underscores."""
    list_allowed_folders: Callable[[], Sequence[Path]]
    """Read on every call: the owner may approve a folder while the worker runs."""
    build_fetcher: Callable[[], UrlRevisitor]
    max_file_bytes: int
    inline_bytes: int
    """Limit of content inside an event (`INGEST__INLINE_BYTES`)."""
    group_prefix: str
    """Prefix of consumer groups on the broker."""
    open_change_topics: Callable[[], AbstractAsyncContextManager[tuple[EventLog, Subscriber]]]
    """Open the broker's topics by their full names, without our topic prefix."""

    @property
    def store(self) -> PgSourceStore:
        return PgSourceStore(self.storage.pool, self.storage.dsn)

    @property
    def declarations(self) -> PgSources:
        return PgSources(self.storage.pool)

    @asynccontextmanager
    async def open(self, source: DeclaredSource) -> AsyncIterator[SourceReader]:
        match source.spec.connector:
            case DebeziumSource() as topic:
                async with self.open_change_topics() as (topics, subscriber):
                    spec = source.spec
                    # With the id of the state: a source without state reads its topic from the
                    # beginning again.
                    state_id = await self.store.fetch_state_id(spec.name)
                    yield TopicReader(
                        source,
                        topic,
                        self._build_applier(spec, topic.mapping),
                        topics,
                        subscriber,
                        f"{self.group_prefix}anabranch.source.{spec.name}.{state_id}",
                        ChangeDeadLetters(
                            spec,
                            self.storage.codec,
                            self.storage.blobs,
                            self.storage.log,
                            self.clock,
                        ),
                        self.store,
                        Backoff(),
                    )
            case PostgresSource() as table:
                reader = self._open_change_reader(source.spec, table)
                try:
                    yield TableReader(
                        source,
                        table,
                        self._build_applier(source.spec, table.mapping),
                        self.store,
                        reader,
                    )
                finally:
                    await reader.close()
            case FolderSource() as folder:
                allowed = self.list_allowed_folders()
                check_folder(folder, allowed)
                yield FolderReader(
                    folder,
                    self._build_item_state(source),
                    self.storage.blobs,
                    self.max_file_bytes,
                    self.clock,
                    allowed,
                )
            case UrlsSource() as urls:
                yield UrlsReader(
                    urls, self._build_item_state(source), self.build_fetcher(), self.clock
                )

    async def wait_until_caught_up(self, source: DeclaredSource) -> None:
        """Return at once if the source has state.

        Else wait until the stages have processed what their topics hold now: in a database that is
        being rebuilt, every item would look new.
        """
        if await self.store.has_state(source.spec.name):
            return
        assignments = assign_stages(
            await PgGenerations(self.storage.pool).fetch_undropped(), STAGES
        )
        awaited = [
            assignment
            for assignment in assignments
            if assignment.stage.fails_document
            and not assignment.stage.serves_all_generations
            and not assignment.suppresses_outcomes
        ]
        barriers = {
            assignment.topic: await self.storage.fetch_ends(assignment.topic)
            for assignment in awaited
        }
        for assignment in awaited:
            while await self.storage.log.count_pending(
                assignment.group, assignment.topic, barriers[assignment.topic]
            ):
                await asyncio.sleep(CAUGHT_UP_POLL_S)

    async def close_down(self, source: DeclaredSource) -> None:
        """Drop the replication slot, withdraw the documents if requested, and delete the source's
        state.
        """
        # First: a slot that stays makes its server retain the write-ahead log.
        if isinstance(source.spec.connector, PostgresSource):
            await self._drop_slot(source.spec, source.spec.connector)
        if source.withdraw:
            after = ""
            while external_ids := await self.declarations.fetch_external_ids(
                source.spec.ce_source, after, PAGE_SIZE
            ):
                await self.storage.log.append(
                    [await self._build_withdrawal(source.spec, name) for name in external_ids]
                )
                # By key and not by number: withdrawn documents leave the list meanwhile.
                after = external_ids[-1]
        await self.store.delete_state(source.spec.name)

    async def _drop_slot(self, spec: SourceSpec, table: PostgresSource) -> None:
        """Drop the slot. Without a database URL and without state, there is none."""
        if self._resolve_dsn(spec) is None and set(await self.store.fetch_notes(spec.name)) <= {
            STATUS_KEY
        }:
            return
        reader = self._open_change_reader(spec, table)
        try:
            await reader.drop_slot()
        finally:
            await reader.close()

    async def _build_withdrawal(self, spec: SourceSpec, external_id: str) -> Record:
        """Withdraw by document id, as the API does: it then follows every change of the source."""
        withdrawn_id = make_document_id(spec.tenant, spec.ce_source, external_id)
        data = DocumentWithdrawn(
            tenant=spec.tenant, document_id=str(withdrawn_id), reason="its source was removed"
        )
        return await build_raw_record(
            data,
            # A fresh id: a source of this name may be removed more than once.
            f"removed/{spec.name}/{withdrawn_id}/{uuid4()}",
            time=self.clock(),
            codec=self.storage.codec,
            document_id=withdrawn_id,
        )

    async def fetch_ends(self, topic: str) -> dict[int, int]:
        """Fetch the end offsets of a change topic. Raises ConfigurationError if it is missing."""
        async with self.open_change_topics() as (topics, _):
            return {
                partition: end
                for partition, (_, end) in (await topics.fetch_offset_bounds(topic)).items()
            }

    def _open_change_reader(self, spec: SourceSpec, table: PostgresSource) -> PgChangeReader:
        check_table(table)
        dsn = self._resolve_dsn(spec)
        if dsn is None:
            remedy = f"Set {format_dsn_setting(spec.name)} in the worker's environment."
            raise ConfigurationError(
                f"Source {spec.name!r} has no database URL.", code="SOURCE_ADDRESS", remedy=remedy
            )
        return PgChangeReader(dsn, *table.schema_and_table, format_slot_name(spec.name, table))

    def _resolve_dsn(self, spec: SourceSpec) -> str | None:
        """Read the database URL from the settings only.

        Declaring a source does not permit choosing a database.
        """
        secret = self.dsns.get(spec.name.replace("-", "_"))
        return secret.get_secret_value() if secret else None

    def _build_applier(self, spec: SourceSpec, mapping: RowMapping) -> ChangeApplier:
        return ChangeApplier(self.store, self._build_delivery(spec), mapping, self.storage.log)

    def _build_delivery(self, spec: SourceSpec) -> RawProducer:
        return RawProducer(
            spec,
            self.storage.codec,
            self.storage.blobs,
            self.clock,
            min(MAX_INLINE_BYTES, self.inline_bytes),
        )

    def _build_item_state(self, source: DeclaredSource) -> ItemStates:
        return ItemStates(
            source,
            self.store,
            self.declarations,
            self._build_delivery(source.spec),
            self.storage.log,
            self.clock,
        )


def format_slot_name(name: str, table: PostgresSource) -> str:
    return table.slot or f"anabranch_{name}".replace("-", "_")
