"""Start, stop and restart the readers of declared sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid4

import structlog
from pydantic import SecretStr

from processors import STAGES
from schemas.errors import AnabranchError, ConfigurationError, TransientError
from schemas.events import DocumentWithdrawn
from schemas.ids import make_document_id
from schemas.ports.log import EventLog, Subscriber
from schemas.ports.sources import SourceStore, UrlRevisitor
from schemas.sources import (
    DebeziumSource,
    DeclaredSource,
    FolderSource,
    PostgresSource,
    RowMapping,
    SourceSpec,
    UrlsSource,
)
from schemas.topics import ACCEPTED, RAW, Record
from services.background_tasks import cancel_tasks
from services.generations.stage_assignments import assign_stages
from services.sources.service import check_folder, check_table, format_dsn_setting
from services.storage import Storage
from sql.catalog.sources import PgSources, PgSourceStore
from sql.log.replication_slot import PgChangeReader
from streams.publisher import build_raw_record
from streams.retry import Backoff
from streams.sources.change_applier import ChangeApplier, ChangeDeadLetters
from streams.sources.folder_reader import FolderReader
from streams.sources.item_state import STATUS_KEY, ItemStates
from streams.sources.raw_producer import MAX_INLINE_BYTES, RawProducer
from streams.sources.table_reader import TableReader
from streams.sources.topic_reader import TopicReader
from streams.sources.urls_reader import UrlsReader
from streams.stage import Stage

log = structlog.get_logger(__name__)
POLL_S = 0.5
LEASE_S = 10.0
RETRY_S = 5.0


class SourceReader(Protocol):
    async def run(self) -> None: ...


@dataclass(slots=True)
class SourceSupervisor:
    """Run until cancelled. A failed source reports its error in its status and is retried."""

    declarations: PgSources
    store: SourceStore
    open_reader: Callable[[DeclaredSource], AbstractAsyncContextManager[SourceReader]]
    wait_until_caught_up: Callable[[DeclaredSource], Awaitable[None]]
    """Returns when the tables reflect the log: a reader without state compares with them."""
    close_down: Callable[[DeclaredSource], Any]
    """Clean up after a removed source. Idempotent."""
    owner: UUID
    source_epochs: dict[str, int]
    """Epoch of every source that was reset, for stage `receive`."""
    running_sources: dict[str, tuple[DeclaredSource, asyncio.Task[None]]] = field(
        default_factory=dict
    )

    async def run(self) -> None:
        while True:
            try:
                async with self.store.open_session(self.owner) as session_lost:
                    await self._reconcile_until(session_lost)
            except TransientError as error:
                log.warning("source_session_postponed", code=error.code, detail=error.detail)
            await asyncio.sleep(POLL_S)

    async def _reconcile_until(self, session_lost: asyncio.Event) -> None:
        """Run the readers until the session is lost: another worker may then acquire the leases."""
        try:
            while not session_lost.is_set():
                try:
                    await self._reconcile()
                except TransientError as error:
                    log.warning("source_poll_postponed", code=error.code, detail=error.detail)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await session_lost.wait()
        finally:
            await self._stop(list(self.running_sources))

    async def _reconcile(self) -> None:
        sources = {source.spec.name: source for source in await self.declarations.fetch_sources()}
        self.source_epochs.update(await self.declarations.fetch_epochs())
        # A changed declaration is a different source: stop its reader and start another one.
        await self._stop(
            [
                name
                for name, (source, _) in self.running_sources.items()
                if sources.get(name) != source
            ]
        )
        for name, source in sources.items():
            if name not in self.running_sources:
                self.running_sources[name] = (source, asyncio.create_task(self._supervise(source)))

    async def _stop(self, source_names: list[str]) -> None:
        tasks = [self.running_sources.pop(name)[1] for name in source_names]
        await cancel_tasks(tasks)

    async def _supervise(self, source: DeclaredSource) -> None:
        """Run one source until its declaration changes."""
        while True:
            try:
                await self._run_source(source)
                return
            except AnabranchError as error:
                await self._report_failure(source, error)
            except Exception as error:
                log.exception("source_reader_crashed", source=source.spec.name)
                defect = AnabranchError(
                    f"{type(error).__name__}: {error}",
                    code="BUG",
                    remedy="This is a defect of the program: report it with the worker's log.",
                )
                await self._report_failure(source, defect)
            await asyncio.sleep(RETRY_S)

    async def _run_source(self, source: DeclaredSource) -> None:
        if source.removed:
            await self._run_exclusively(source, lambda: self.close_down(source))
            return
        # A reader without state compares with the tables, which may be in a rebuild.
        await self.wait_until_caught_up(source)
        async with self.open_reader(source) as source_reader:
            # A consumer group shares out its partitions; other sources have one reader at a time.
            if isinstance(source.spec.connector, DebeziumSource):
                await source_reader.run()
            else:
                await self._run_exclusively(source, source_reader.run)

    async def _run_exclusively(self, source: DeclaredSource, run: Callable[[], Any]) -> None:
        """Run while this process holds the source's lease."""
        name = source.spec.name
        while not await self.store.acquire_lease(name, self.owner, LEASE_S):
            await asyncio.sleep(POLL_S)
        reading = asyncio.ensure_future(run())
        lease_renewal = asyncio.create_task(self._renew_lease(name))
        try:
            # A lost lease has to stop the reader, and the reader's error the renewal.
            await asyncio.wait({reading, lease_renewal}, return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, lease_renewal):
                if task.done():
                    task.result()
        finally:
            # Shielded: a cancelled worker must release the lease, or others wait until it expires.
            await asyncio.shield(self._stop_and_release(name, reading, lease_renewal))

    async def _stop_and_release(self, name: str, *tasks: asyncio.Future[Any]) -> None:
        await cancel_tasks(tasks)
        try:
            await self.store.release_lease(name, self.owner)
        except TransientError as error:
            log.debug("source_lease_not_released", source=name, detail=error.detail)

    async def _renew_lease(self, name: str) -> None:
        """Raise TransientError when another worker has the lease, or after two missed renewals."""
        missed_renewals = 0
        # Two failures take about half of the lease, so reading stops before another worker begins.
        while missed_renewals < 2:
            await asyncio.sleep(LEASE_S / 4)
            try:
                if not await self.store.acquire_lease(name, self.owner, LEASE_S):
                    break
                missed_renewals = 0
            except TransientError:
                missed_renewals += 1
        raise TransientError(
            f"Another worker may have taken over source {name}.",
            code="LEASE_LOST",
            remedy="No action is needed: one of the workers continues.",
        )

    async def _report_failure(self, source: DeclaredSource, reason: AnabranchError) -> None:
        failure = reason.to_dict()
        log.warning("source_failed", source=source.spec.name, **failure)
        try:
            await self.store.set_note(source.spec.name, "status", {"state": "failed", **failure})
        except TransientError as error:
            log.debug("source_status_not_stored", source=source.spec.name, detail=error.detail)


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
        if not await self.store.has_state(source.spec.name):
            await self._wait_for_stages(
                [
                    stage
                    for stage in STAGES
                    if stage.fails_document and not stage.serves_all_generations
                ]
            )

    async def _wait_for_stages(self, stages: Sequence[Stage]) -> None:
        """Wait until these stages have processed what their topics hold now."""
        assignments = assign_stages(await self.storage.generations.fetch_undropped(), stages)
        awaited = [assignment for assignment in assignments if not assignment.suppresses_outcomes]
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
            # What the source has sent last is not listed until it is projected.
            for topic in (RAW, ACCEPTED):
                await self._wait_for_stages([stage for stage in STAGES if stage.topic == topic])
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
            raise ConfigurationError(
                f"Source {spec.name!r} has no database URL.",
                code="SOURCE_ADDRESS",
                remedy=f"Set {format_dsn_setting(spec.name)} in the worker's environment.",
            )
        slot = table.slot or f"anabranch_{spec.name}".replace("-", "_")
        return PgChangeReader(dsn, *table.schema_and_table, slot)

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
