"""In-memory source store for tests of readers. Passes the same contract suite as the tables."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from schemas.ports.sources import EndedSnapshot, UntrackedDocument
from schemas.sources import EmittedState, RowChange, RowState, SequenceMark, TableFloors

_EndedSnapshotState = tuple[SequenceMark, str, Mapping[int, int]]


@dataclass(slots=True)
class _SourceState:
    state_number: int
    changes: dict[str, dict[Any, RowChange]] = field(default_factory=lambda: defaultdict(dict))
    emitted_states: dict[str, EmittedState] = field(default_factory=dict)
    floors: dict[str, TableFloors] = field(default_factory=dict)
    progress: dict[tuple[str, int], int] = field(default_factory=dict)
    ended_snapshots: dict[str, _EndedSnapshotState] = field(default_factory=dict)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    lease_owner: UUID | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class MemorySourceTransaction:
    def __init__(self, state: _SourceState) -> None:
        self._state = state

    async def fetch_floors(self) -> Mapping[str, TableFloors]:
        return dict(self._state.floors)

    async def fetch_rows(self, keys: Collection[str]) -> dict[str, RowState]:
        linked = set(keys)
        while new_keys := self._find_linked_keys(linked) - linked:
            linked |= new_keys
        return {
            key: RowState(
                tuple(self._state.changes.get(key, {}).values()),
                self._state.emitted_states.get(key),
            )
            for key in sorted(linked)
        }

    def _find_linked_keys(self, keys: set[str]) -> set[str]:
        links = {
            (change.key, change.old_key)
            for changes in self._state.changes.values()
            for change in changes.values()
            if change.old_key
        }
        return {
            linked_key
            for key, old_key in links
            if key in keys or old_key in keys
            for linked_key in (key, old_key)
        }

    async def save_changes(
        self, changes: Sequence[RowChange], emitted: Mapping[str, EmittedState]
    ) -> None:
        for change in changes:
            self._state.changes[change.key].setdefault((change.order, change.is_deleted), change)
        self._state.emitted_states |= emitted

    async def raise_floors(
        self,
        table: str,
        *,
        truncated_at: SequenceMark | None = None,
        snapshot_started_at: SequenceMark | None = None,
    ) -> None:
        floors = self._state.floors.get(table, TableFloors())
        self._state.floors[table] = TableFloors(
            max(floors.truncated_at, truncated_at or (0, 0)),
            max(floors.snapshot_started_at, snapshot_started_at or (0, 0)),
        )

    async def record_progress(self, topic: str, partition: int, next_offset: int) -> None:
        self._state.progress[topic, partition] = max(
            next_offset, self._state.progress.get((topic, partition), 0)
        )

    async def record_snapshot_end(
        self, table: str, mark: SequenceMark, topic: str, end_offsets: Mapping[int, int]
    ) -> None:
        if table not in self._state.ended_snapshots or self._state.ended_snapshots[table][0] < mark:
            self._state.ended_snapshots[table] = (mark, topic, end_offsets)


class MemorySourceStore:
    """A `SourceStore` in dictionaries. Has no documents, so it never finds untracked ones."""

    def __init__(self) -> None:
        self._states: dict[str, _SourceState] = {}
        self._created_count = 0
        self.sessions: dict[UUID | None, asyncio.Event] = {}
        """Live owners; the test of a lost session sets its event."""

    @asynccontextmanager
    async def begin_transaction(self, source: str) -> AsyncIterator[MemorySourceTransaction]:
        state = self._get_state(source)
        async with state.lock:
            yield MemorySourceTransaction(state)

    async def mark_emitted(self, source: str, emitted: Mapping[str, EmittedState]) -> None:
        rows = self._get_state(source).emitted_states
        for key, row in emitted.items():
            if key in rows and replace(rows[key], released_ids=(), is_pending=False) == replace(
                row, released_ids=(), is_pending=False
            ):
                rows[key] = replace(rows[key], released_ids=(), is_pending=False)

    async def fetch_live_below(
        self, source: str, table: str, mark: SequenceMark, after: str, limit: int
    ) -> list[str]:
        rows = self._get_state(source).emitted_states
        return sorted(
            key
            for key, row in rows.items()
            if row.table == table and row.is_live and row.mark < mark and key > after
        )[:limit]

    async def fetch_pending(self, source: str, after: str, limit: int) -> list[str]:
        return sorted(
            key
            for key, row in self._get_state(source).emitted_states.items()
            if row.is_pending and key > after
        )[:limit]

    async def fetch_untracked(
        self, source: str, ce_source: str, mark: SequenceMark, after: str, limit: int
    ) -> list[UntrackedDocument]:
        return []

    async def fetch_ended_snapshots(self, source: str) -> list[EndedSnapshot]:
        state = self._get_state(source)
        snapshots = []
        for table, (mark, topic, ends) in state.ended_snapshots.items():
            starts = {partition: state.progress.get((topic, partition), 0) for partition in ends}
            unread = {
                partition: (starts[partition], end)
                for partition, end in ends.items()
                if starts[partition] < end
            }
            snapshots.append(EndedSnapshot(table, mark, topic, unread))
        return snapshots

    async def mark_snapshot_swept(self, source: str, table: str, mark: SequenceMark) -> None:
        if self._get_state(source).ended_snapshots.get(table, ((0, 0), "", {}))[0] == mark:
            del self._get_state(source).ended_snapshots[table]

    async def fetch_state_id(self, source: str) -> str:
        return f"reader-{self._get_state(source).state_number}"

    async def has_state(self, source: str) -> bool:
        return source in self._states

    async def record_change_time(self, source: str) -> None:
        """Do nothing: only the tables report this time."""

    async def set_note(self, source: str, key: str, value: Mapping[str, Any] | None) -> None:
        notes = self._get_state(source).notes
        notes.pop(key, None)
        if value is not None:
            notes[key] = dict(value)

    async def set_notes(self, source: str, notes: Mapping[str, Mapping[str, Any]]) -> None:
        self._get_state(source).notes.update({key: dict(note) for key, note in notes.items()})

    async def fetch_notes(self, source: str) -> dict[str, dict[str, Any]]:
        return dict(self._get_state(source).notes)

    async def delete_state(self, source: str) -> None:
        self._states.pop(source, None)

    @asynccontextmanager
    async def open_session(self, owner: UUID) -> AsyncIterator[asyncio.Event]:
        lost = self.sessions[owner] = asyncio.Event()
        try:
            yield lost
        finally:
            del self.sessions[owner]

    async def acquire_lease(self, source: str, owner: UUID, lease_s: float) -> bool:
        state = self._get_state(source)
        if state.lease_owner not in self.sessions:
            state.lease_owner = owner
        return state.lease_owner == owner

    async def release_lease(self, source: str, owner: UUID) -> None:
        if self._get_state(source).lease_owner == owner:
            self._get_state(source).lease_owner = None

    def _get_state(self, source: str) -> _SourceState:
        if source not in self._states:
            self._created_count += 1
            self._states[source] = _SourceState(self._created_count)
        return self._states[source]
