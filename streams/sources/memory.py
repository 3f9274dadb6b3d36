"""The state of sources in memory: for tests of readers, held to the same promises as the tables by the same suite."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from schemas.ports.sources import EndedSnapshot, Stranger
from schemas.sources import Change, Floors, Mark, RowState, Said

_Ended = tuple[Mark, str, Mapping[int, int]]


@dataclass(slots=True)
class _State:
    reader: int
    changes: dict[str, dict[Any, Change]] = field(default_factory=lambda: defaultdict(dict))
    said: dict[str, Said] = field(default_factory=dict)
    floors: dict[str, Floors] = field(default_factory=dict)
    progress: dict[tuple[str, int], int] = field(default_factory=dict)
    ended: dict[str, _Ended] = field(default_factory=dict)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    holder: UUID | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class MemoryTurn:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def floors(self) -> Mapping[str, Floors]:
        return dict(self._state.floors)

    async def rows(self, keys: Collection[str]) -> dict[str, RowState]:
        linked = set(keys)
        while more := self._neighbours(linked) - linked:
            linked |= more
        return {key: RowState(tuple(self._state.changes.get(key, {}).values()), self._state.said.get(key)) for key in sorted(linked)}

    def _neighbours(self, keys: set[str]) -> set[str]:
        links = {(change.key, change.old_key) for changes in self._state.changes.values() for change in changes.values() if change.old_key}
        return {other for one, two in links if one in keys or two in keys for other in (one, two)}

    async def save(self, changes: Sequence[Change], said: Mapping[str, Said]) -> None:
        for change in changes:
            self._state.changes[change.key].setdefault((change.order, change.gone), change)
        self._state.said |= said

    async def raise_floors(self, table: str, *, truncated: Mark | None = None, read: Mark | None = None) -> None:
        before = self._state.floors.get(table, Floors())
        self._state.floors[table] = Floors(max(before.truncated, truncated or (0, 0)), max(before.read, read or (0, 0)))

    async def passed(self, topic: str, partition: int, next_offset: int) -> None:
        self._state.progress[topic, partition] = max(next_offset, self._state.progress.get((topic, partition), 0))

    async def snapshot_ends(self, table: str, mark: Mark, topic: str, ends: Mapping[int, int]) -> None:
        if table not in self._state.ended or self._state.ended[table][0] < mark:
            self._state.ended[table] = (mark, topic, ends)


class MemorySourceStore:
    """Without a table of documents there are no strangers."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._made = 0

    @asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[MemoryTurn]:
        state = self._state(source)
        async with state.lock:
            yield MemoryTurn(state)

    async def told(self, source: str, said: Mapping[str, Said]) -> None:
        rows = self._state(source).said
        for key, row in said.items():
            if key in rows and replace(rows[key], left=(), owed=False) == replace(row, left=(), owed=False):
                rows[key] = replace(rows[key], left=(), owed=False)

    async def live_below(self, source: str, table: str, mark: Mark, after: str, limit: int) -> list[str]:
        rows = self._state(source).said
        return sorted(key for key, row in rows.items() if row.table == table and row.live and row.mark < mark and key > after)[:limit]

    async def owed(self, source: str, after: str, limit: int) -> list[str]:
        return sorted(key for key, row in self._state(source).said.items() if row.owed and key > after)[:limit]

    async def strangers(self, source: str, ce_source: str, mark: Mark, after: str, limit: int) -> list[Stranger]:
        return []

    async def ended_snapshots(self, source: str) -> list[EndedSnapshot]:
        state = self._state(source)
        return [EndedSnapshot(table, mark, topic, _unread(state, topic, ends)) for table, (mark, topic, ends) in state.ended.items()]

    async def snapshot_swept(self, source: str, table: str, mark: Mark) -> None:
        if self._state(source).ended.get(table, ((0, 0), "", {}))[0] == mark:
            del self._state(source).ended[table]

    async def reader(self, source: str) -> str:
        return f"reader-{self._state(source).reader}"

    async def remembers(self, source: str) -> bool:
        return source in self._states

    async def note_change(self, source: str) -> None:
        """Only the tables tell when that was."""

    async def note(self, source: str, key: str, value: Mapping[str, Any] | None) -> None:
        notes = self._state(source).notes
        notes.pop(key, None)
        if value is not None:
            notes[key] = dict(value)

    async def notes(self, source: str) -> dict[str, dict[str, Any]]:
        return dict(self._state(source).notes)

    async def forget(self, source: str) -> None:
        self._states.pop(source, None)

    async def hold(self, source: str, owner: UUID, seconds: float) -> bool:
        state = self._state(source)
        state.holder = state.holder or owner
        return state.holder == owner

    async def release(self, source: str, owner: UUID) -> None:
        if self._state(source).holder == owner:
            self._state(source).holder = None

    def _state(self, source: str) -> _State:
        if source not in self._states:
            self._made += 1
            self._states[source] = _State(self._made)
        return self._states[source]


def _unread(state: _State, topic: str, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    return {partition: (start, end) for partition, end in ends.items() if (start := state.progress.get((topic, partition), 0)) < end}
