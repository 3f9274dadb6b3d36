"""Changes of rows into the state of their source, and from there into `raw`.

In one transaction the changes are kept, the rows that they touch are looked at anew, and what is to be said of each is written down as owed; then it is
said, and then no longer owed. A crash anywhere leaves it owed or said: whoever comes next says it again, under the same id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from schemas.errors import MalformedEvent
from schemas.ports.log import EventLog
from schemas.ports.sources import EndedSnapshot, SourceStore, Turn
from schemas.records import Record
from schemas.sources import Change, Mark, RowMapping, Said
from streams.sources.delivery import Delivery
from streams.sources.envelope import Saying, SnapshotEnd, Truncation
from streams.sources.fold import Outcome, Present, outcome
from streams.sources.saying import draft, next_said

log = structlog.get_logger(__name__)
PAGE = 500
IsRead = Callable[[EndedSnapshot], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Place:
    """How far a partition is with a batch, and where all partitions of its topic end just now."""

    topic: str
    partition: int
    next_offset: int
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Turned:
    """What a turn comes to: rows to speak of, each with what it has come to."""

    said: dict[str, Said] = field(default_factory=dict)
    found: dict[str, Outcome] = field(default_factory=dict)
    refused: dict[str, MalformedEvent] = field(default_factory=dict)


class Applier:
    """For one source. Every call may raise TransientError, and can then be repeated as it was."""

    def __init__(self, store: SourceStore, delivery: Delivery, mapping: RowMapping, event_log: EventLog) -> None:
        self._store, self._delivery, self._mapping, self._log = store, delivery, mapping, event_log
        self._spec = delivery.spec

    async def apply(self, sayings: Sequence[Saying], place: Place | None = None) -> Mapping[str, MalformedEvent]:
        """Returns when `raw` has all that follows from these. Rows that no document can be made of are given back by key, with the reason."""
        changes = [saying for saying in sayings if isinstance(saying, Change)]
        truncations = [saying for saying in sayings if isinstance(saying, Truncation)]
        async with self._store.turn(self._spec.name) as turn:
            for truncation in truncations:
                await turn.raise_floors(truncation.table, truncated=(truncation.epoch, truncation.sequence))
            turned = await self._turned(turn, changes, {change.key for change in changes})
            if place is not None:
                await self._note(turn, sayings, place)
        await self._say(turned)
        for truncation in truncations:
            await self.withdraw_below(truncation.table, (truncation.epoch, truncation.sequence + 1))
        return turned.refused

    async def end_snapshot(self, table: str, mark: Mark) -> None:
        """A full snapshot of the table that began at the mark is in the state: what it has not read is withdrawn."""
        async with self._store.turn(self._spec.name) as turn:
            await turn.raise_floors(table, read=mark)
        await self.withdraw_below(table, mark)

    async def end_snapshots(self, is_read: IsRead | None = None) -> None:
        """Those of which all records have passed meanwhile. `is_read` is asked of the others: what has not passed may hold no record."""
        for ended in await self._store.ended_snapshots(self._spec.name):
            if not ended.unread or (is_read is not None and await is_read(ended)):
                log.info("snapshot ended", source=self._spec.name, table=ended.table)
                await self.end_snapshot(ended.table, ended.mark)
                await self._store.snapshot_swept(self._spec.name, ended.table, ended.mark)

    async def withdraw_below(self, table: str, mark: Mark) -> None:
        """Look anew at each row that was last spoken of before the mark, and at documents that the state does not know."""
        after = ""
        while keys := await self._store.live_below(self._spec.name, table, mark, after, PAGE):
            await self._look_again(keys)
            after = keys[-1]
        after = ""
        while strangers := await self._store.strangers(self._spec.name, self._spec.ce_source, mark, after, PAGE):
            await self._log.append([await self._delivery.withdrawn(stranger.external_id, mark) for stranger in strangers])
            after = strangers[-1].external_id

    async def say_what_is_owed(self) -> None:
        """What a process that ended left behind."""
        after = ""
        while keys := await self._store.owed(self._spec.name, after, PAGE):
            await self._look_again(keys)
            after = keys[-1]

    async def _look_again(self, keys: Collection[str]) -> None:
        async with self._store.turn(self._spec.name) as turn:
            turned = await self._turned(turn, [], keys)
        await self._say(turned)

    async def _turned(self, turn: Turn, changes: Sequence[Change], keys: Collection[str]) -> _Turned:
        await turn.save(changes, {})
        floors, rows, turned = await turn.floors(), await turn.rows(keys), _Turned()
        fresh: dict[str, Said] = {}
        for key, state in rows.items():
            found = outcome(key, rows, floors)
            try:
                said = next_said(key, found, state.said, self._spec, self._mapping)
            except MalformedEvent as error:
                turned.refused[key] = error
                continue
            if said is not None:
                fresh[key] = said
            owed = said or (state.said if state.said and state.said.owed else None)
            if owed is not None and found is not None:
                turned.said[key], turned.found[key] = owed, found
        await turn.save([], fresh)
        return turned

    async def _note(self, turn: Turn, sayings: Sequence[Saying], place: Place) -> None:
        for end in sayings:
            if isinstance(end, SnapshotEnd):
                await turn.snapshot_ends(end.table, (end.epoch, end.sequence), place.topic, place.ends)
        await turn.passed(place.topic, place.partition, place.next_offset)

    async def _say(self, turned: _Turned) -> None:
        everything = list(turned.said)
        for keys in (everything[start : start + PAGE] for start in range(0, len(everything), PAGE)):
            records = [record for key in keys for record in await self._records(key, turned)]
            if records:
                await self._log.append(records)
            await self._store.told(self._spec.name, {key: turned.said[key] for key in keys})

    async def _records(self, key: str, turned: _Turned) -> list[Record]:
        said, found = turned.said[key], turned.found[key]
        if not said.live:
            return await self._delivery.ends(said)
        if isinstance(found, Present):
            return await self._delivery.present(said, draft(key, found.columns, self._mapping))
        return []
