"""A table read straight from its database: a snapshot, then what its slot gives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from schemas.errors import ConfigurationError, MalformedEvent, PermanentError
from schemas.ports.sources import ChangeReader, SourceStore
from schemas.records import Record
from schemas.sources import DeclaredSource, PostgresSource
from streams.sources.applying import Applier
from streams.sources.envelope import Saying, sayings
from streams.sources.pgoutput import PgOutput, TableShape

log = structlog.get_logger(__name__)
AT_ONCE = 2000
SNAPSHOT, POSITION, STATUS = "snapshot", "position", "status"


@dataclass(slots=True)
class TableReader:
    """Runs until cancelled, or raises what stopped it. For one process at a time. What it applied but not yet advanced over comes again and changes nothing."""

    source: DeclaredSource
    takes: PostgresSource
    applier: Applier
    store: SourceStore
    reader: ChangeReader
    poll_s: float = 0.5

    async def run(self) -> None:
        await self.applier.say_what_is_owed()
        shape = await self._shape()
        if not await self._continues():
            await self._snapshot(shape)
        await self._status("streaming")
        await self._stream(PgOutput(*self.takes.place, partial(self._fitting, key=shape.key)))

    async def _shape(self) -> TableShape:
        types, key = await self.reader.columns()
        schema, table = self.takes.place
        if not key:
            remedy = f"alter table {schema}.{table} add primary key (…)"
            raise ConfigurationError(f"table {schema}.{table} has no primary key, so its rows cannot be told apart", code="NO_PRIMARY_KEY", remedy=remedy)
        return self._fitting(types, key=key)

    def _fitting(self, types: Mapping[str, int], *, key: Sequence[str]) -> TableShape:
        """Raises ConfigurationError for a table that has not all that is read of it: a change is not passed over, it waits in the slot."""
        schema, table = self.takes.place
        if missing := [name for name in dict.fromkeys([*key, *self.takes.mapping.columns]) if name not in types]:
            raise ConfigurationError(
                f"table {schema}.{table} has no column {', '.join(missing)}; it has {', '.join(types)}",
                code="NO_SUCH_COLUMN",
                remedy="Remove the source and add it with the columns that the table has.",
            )
        return TableShape(schema, table, types, key)

    async def _continues(self) -> bool:
        """Whether the slot goes on where we left it: another one of its name, or one that others read too, is ahead of us."""
        notes, slot = await self.store.notes(self._name), await self.reader.slot()
        left = notes.get(POSITION, {}).get("sequence", 0)
        continues = notes.get(SNAPSHOT, {}).get("epoch") == self.source.epoch and slot.exists and not slot.lost and slot.advanced <= left
        if continues:
            self._check_not_back(slot.written, left)
        return continues

    async def _snapshot(self, shape: TableShape) -> None:
        await self._status("snapshot")
        async with self.reader.snapshot() as snapshot:
            await self._check_forward(snapshot.sequence)
            async for rows in snapshot.rows:
                await self._apply([shape.record("r", row, snapshot.sequence, snapshot="true") for row in rows])
            await self.applier.end_snapshot(f"{shape.schema}.{shape.table}", (self.source.epoch, snapshot.sequence))
            made = await self.reader.slot()
        await self.store.note(self._name, POSITION, {"epoch": self.source.epoch, "sequence": made.advanced})
        await self.store.note(self._name, SNAPSHOT, {"epoch": self.source.epoch, "sequence": snapshot.sequence})

    def _check_own(self, advanced: int, left: int) -> None:
        if advanced > left:
            raise ConfigurationError(
                f"the slot of source {self._name} is at position {advanced} and we left it at {left}: it was made anew, or somebody else reads it",
                code="SLOT_TAKEN",
                remedy="Nothing, if that was once: the table is read anew. Else give the source, or that of another installation, a slot of its own (--slot).",
            )

    async def _check_forward(self, sequence: int) -> None:
        """A restored database begins at positions that it had before: what it says would lose against what it said then."""
        before = (await self.store.notes(self._name)).get(POSITION, {})
        if before.get("epoch") == self.source.epoch:
            self._check_not_back(sequence, before["sequence"])

    def _check_not_back(self, sequence: int, before: int) -> None:
        if before > sequence:
            raise ConfigurationError(
                f"the database of source {self._name} is at position {sequence}, it was at {before} before: it was restored",
                code="SOURCE_WENT_BACK",
                remedy=f"anabranch source reset {self._name}",
            )

    async def _stream(self, decoder: PgOutput) -> None:
        left = (await self.store.notes(self._name))[POSITION]["sequence"]
        while True:
            async with self.reader.peek(AT_ONCE) as peeked:
                self._check_own(peeked.advanced, left)
                self._check_not_back(peeked.reached, left)
                reached, changed = peeked.reached, False
                async for messages in peeked.batches:
                    await self._apply([record for message in messages for record in decoder.records(message.sequence, message.payload)])
                    reached, changed = messages[-1].sequence, True
            await self.store.note(self._name, POSITION, {"epoch": self.source.epoch, "sequence": reached})
            await self.reader.advance(reached)
            left = reached
            if not changed:
                await asyncio.sleep(self.poll_s)

    async def _apply(self, records: Sequence[Record]) -> None:
        said: list[Saying] = []
        for record in records:
            try:
                said += sayings(record, self.source.epoch, self.takes.mapping)
            except PermanentError as error:
                await self._refused({"": error})
        await self._refused(await self.applier.apply(said))

    async def _refused(self, refused: Mapping[str, MalformedEvent | PermanentError]) -> None:
        """There is no record to bury: the last refusal stands in the source's status."""
        for key, error in refused.items():
            log.warning("row refused", source=self._name, key=key, code=error.code, detail=error.detail)
            await self._status("streaming", refused={"key": key, "code": error.code, "detail": error.detail, "remedy": error.remedy})

    async def _status(self, state: str, **more: Any) -> None:
        await self.store.note(self._name, STATUS, {"state": state, **more})

    @property
    def _name(self) -> str:
        return self.source.spec.name
