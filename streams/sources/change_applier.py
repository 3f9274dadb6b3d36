"""Apply row changes to the state of a source and publish the resulting events to `raw`.

One transaction stores the changes, merges the rows that they touch and marks the next event of each
row as pending. Then the events are published and unmarked. After a crash, pending events are
published again under the same ids. An unreadable change becomes a dead letter, with a copy of the
record as a blob, since its topic is foreign and may expire.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from schemas.errors import MalformedEvent, PermanentError
from schemas.events import Event, EventDeadLettered
from schemas.events.dead_letters import LogPosition
from schemas.ids import content_id
from schemas.ports.engines import BlobStore
from schemas.ports.log import EventLog
from schemas.ports.sources import EndedSnapshot, SourceStore, SourceTransaction
from schemas.sources import EmittedState, RowChange, RowMapping, SequenceMark, SourceSpec
from schemas.topics import Record, StoredRecord
from streams.codec import Codec
from streams.publisher import Publisher
from streams.sources.debezium import ChangeEvent, SnapshotEnd, Truncation
from streams.sources.emitter import (
    MergedRow,
    PresentRow,
    build_document,
    compute_next_emitted_state,
    merge_row,
)
from streams.sources.raw_producer import RawProducer
from streams.stage import Emission


@dataclass(frozen=True, slots=True)
class ChangeDeadLetters:
    spec: SourceSpec
    codec: Codec
    blobs: BlobStore
    log: EventLog
    clock: Callable[[], datetime]

    async def publish(self, stored_record: StoredRecord, error: PermanentError) -> None:
        """Publish the dead letter of a record, always under the same event id. Raises
        TransientError.
        """
        position = stored_record.position
        # Derived from the position: a record that is read again gives the same dead letter.
        event_id = content_id("unreadable", position.topic, position.partition, position.offset)
        data = EventDeadLettered(
            stage=f"source {self.spec.name}",
            event_id=event_id,
            tenant=self.spec.tenant,
            position=LogPosition(
                topic=position.topic, partition=position.partition, offset=position.offset
            ),
            code=error.code,
            detail=error.detail[:2000],
            remedy=error.remedy,
            attempts=1,
            record=await self.blobs.put(
                f"_dead_letters/{event_id}", stored_record.record.value or b""
            ),
            producer_source=self.spec.ce_source,
        )
        cause: Event[EventDeadLettered] = Event(
            id=event_id,
            data=data,
            source=self.spec.ce_source,
            event_id=str(event_id),
            time=None,
            tenant=self.spec.tenant,
        )
        emission = Emission(cause, data, id_parts=("dead_lettered", "source", str(event_id)))
        await self.log.append(
            [await Publisher("source", None, self.codec, self.clock).build_record(emission)]
        )


log = structlog.get_logger(__name__)
PAGE_SIZE = 500
IsSnapshotRead = Callable[[EndedSnapshot], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Next offset of a partition after a batch, and the current end offsets of its topic."""

    topic: str
    partition: int
    next_offset: int
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Transition:
    """Rows with a pending event, their merged state, and rows that cannot become a document."""

    pending: dict[str, EmittedState] = field(default_factory=dict)
    merged_rows: dict[str, MergedRow] = field(default_factory=dict)
    rejected: dict[str, MalformedEvent] = field(default_factory=dict)


class ChangeApplier:
    """Applies the changes of one source. Any method may raise TransientError and can then be
    repeated.
    """

    def __init__(
        self,
        store: SourceStore,
        raw_producer: RawProducer,
        mapping: RowMapping,
        event_log: EventLog,
    ) -> None:
        self._store = store
        self._raw_producer = raw_producer
        self._mapping = mapping
        self._log = event_log
        self._spec = raw_producer.spec

    async def apply(
        self, change_events: Sequence[ChangeEvent], position: BatchPosition | None = None
    ) -> Mapping[str, MalformedEvent]:
        """Apply changes and return when `raw` has acknowledged the resulting events.

        Returns rows that cannot become a document, by key, with the reason.
        """
        changes = [
            change_event for change_event in change_events if isinstance(change_event, RowChange)
        ]
        truncations = [
            change_event for change_event in change_events if isinstance(change_event, Truncation)
        ]
        async with self._store.begin_transaction(self._spec.name) as transaction:
            for truncation in truncations:
                await transaction.raise_floors(
                    truncation.table, truncated_at=(truncation.epoch, truncation.sequence)
                )
            transition = await self._compute_transition(
                transaction, changes, {change.key for change in changes}
            )
            if position is not None:
                # In the same transaction: the progress never claims changes that are not stored.
                for change_event in change_events:
                    if isinstance(change_event, SnapshotEnd):
                        await transaction.record_snapshot_end(
                            change_event.table,
                            (change_event.epoch, change_event.sequence),
                            position.topic,
                            position.ends,
                        )
                await transaction.record_progress(
                    position.topic, position.partition, position.next_offset
                )
        await self._emit(transition)
        for truncation in truncations:
            await self.withdraw_below(truncation.table, (truncation.epoch, truncation.sequence + 1))
        return transition.rejected

    async def end_snapshot(self, table: str, mark: SequenceMark) -> None:
        """Withdraw the rows that a full snapshot of the table, begun at the mark, has not read."""
        async with self._store.begin_transaction(self._spec.name) as transaction:
            # Raised before the sweep: changes below the floor that arrive later cannot revive a
            # row.
            await transaction.raise_floors(table, snapshot_started_at=mark)
        await self.withdraw_below(table, mark)

    async def end_snapshots(self, is_snapshot_read: IsSnapshotRead | None = None) -> None:
        """End the snapshots whose records have all been applied.

        `is_snapshot_read` decides for those with unread offsets, which may hold no records.
        """
        for ended_snapshot in await self._store.fetch_ended_snapshots(self._spec.name):
            if not ended_snapshot.unread_offsets or (
                is_snapshot_read is not None and await is_snapshot_read(ended_snapshot)
            ):
                log.info("snapshot_ended", source=self._spec.name, table=ended_snapshot.table)
                await self.end_snapshot(ended_snapshot.table, ended_snapshot.mark)
                # Last: a crash before this sweeps again, which emits nothing new.
                await self._store.mark_snapshot_swept(
                    self._spec.name, ended_snapshot.table, ended_snapshot.mark
                )

    async def withdraw_below(self, table: str, mark: SequenceMark) -> None:
        """Evaluate again rows last emitted before the mark, and withdraw documents missing in the
        state.
        """
        after = ""
        while keys := await self._store.fetch_live_below(
            self._spec.name, table, mark, after, PAGE_SIZE
        ):
            await self._reevaluate(keys)
            after = keys[-1]
        after = ""
        while untracked_documents := await self._store.fetch_untracked(
            self._spec.name, self._spec.ce_source, mark, after, PAGE_SIZE
        ):
            await self._log.append(
                [
                    await self._raw_producer.build_withdrawal_record(
                        untracked_document.external_id, mark
                    )
                    for untracked_document in untracked_documents
                ]
            )
            after = untracked_documents[-1].external_id

    async def emit_pending(self) -> None:
        """Publish events that an earlier process left pending."""
        after = ""
        while keys := await self._store.fetch_pending(self._spec.name, after, PAGE_SIZE):
            await self._reevaluate(keys)
            after = keys[-1]

    async def _reevaluate(self, keys: Collection[str]) -> None:
        async with self._store.begin_transaction(self._spec.name) as transaction:
            transition = await self._compute_transition(transaction, [], keys)
        await self._emit(transition)

    async def _compute_transition(
        self, transaction: SourceTransaction, changes: Sequence[RowChange], keys: Collection[str]
    ) -> _Transition:
        # Stored first, so that the merge below reads old and new changes alike.
        await transaction.save_changes(changes, {})
        floors = await transaction.fetch_floors()
        rows = await transaction.fetch_rows(keys)
        transition = _Transition()
        new_states: dict[str, EmittedState] = {}
        for key, state in rows.items():
            merged_row = merge_row(key, rows, floors)
            try:
                new_state = compute_next_emitted_state(
                    key, merged_row, state.emitted, self._spec, self._mapping
                )
            except MalformedEvent as error:
                # The state of the row stays: a later change may make it a document.
                transition.rejected[key] = error
                continue
            if new_state is not None:
                new_states[key] = new_state
            # Also states that an earlier attempt stored and did not publish.
            pending_state = new_state or (
                state.emitted if state.emitted and state.emitted.is_pending else None
            )
            if pending_state is not None and merged_row is not None:
                transition.pending[key], transition.merged_rows[key] = pending_state, merged_row
        await transaction.save_changes([], new_states)
        return transition

    async def _emit(self, transition: _Transition) -> None:
        all_keys = list(transition.pending)
        for keys in (
            all_keys[start : start + PAGE_SIZE] for start in range(0, len(all_keys), PAGE_SIZE)
        ):
            records: list[Record] = []
            for key in keys:
                emitted_state, merged_row = transition.pending[key], transition.merged_rows[key]
                if not emitted_state.is_live:
                    records += await self._raw_producer.build_release_records(emitted_state)
                elif isinstance(merged_row, PresentRow):
                    records += await self._raw_producer.build_document_records(
                        emitted_state, build_document(key, merged_row.columns, self._mapping)
                    )
            if records:
                await self._log.append(records)
            # After the acknowledgement: a crash before this publishes the same ids again.
            await self._store.mark_emitted(
                self._spec.name, {key: transition.pending[key] for key in keys}
            )
