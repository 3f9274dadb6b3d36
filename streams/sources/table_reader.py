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
from streams.sources.change_applier import ChangeApplier
from streams.sources.debezium import ChangeEvent, parse_change_events
from streams.sources.pgoutput import PgOutputDecoder, TableShape

log = structlog.get_logger(__name__)
PEEK_LIMIT = 2000
SNAPSHOT_KEY, POSITION_KEY, STATUS_KEY = "snapshot", "position", "status"


@dataclass(slots=True)
class TableReader:
    """Runs until cancelled, or raises what stopped it. For one process at a time. What it applied but not yet advanced over comes again and changes nothing."""

    source: DeclaredSource
    config: PostgresSource
    applier: ChangeApplier
    store: SourceStore
    reader: ChangeReader
    poll_s: float = 0.5

    async def run(self) -> None:
        await self.applier.emit_pending()
        shape = await self._fetch_shape()
        if not await self._can_resume():
            await self._read_snapshot(shape)
        await self._store_status("streaming")
        await self._stream(PgOutputDecoder(*self.config.schema_and_table, partial(self._build_shape, key=shape.key)))

    async def _fetch_shape(self) -> TableShape:
        types, key = await self.reader.fetch_columns()
        schema, table = self.config.schema_and_table
        if not key:
            remedy = f"alter table {schema}.{table} add primary key (…)"
            raise ConfigurationError(f"table {schema}.{table} has no primary key, so its rows cannot be told apart", code="NO_PRIMARY_KEY", remedy=remedy)
        return self._build_shape(types, key=key)

    def _build_shape(self, types: Mapping[str, int], *, key: Sequence[str]) -> TableShape:
        """Raises ConfigurationError for a table that has not all that is read of it: a change is not passed over, it waits in the slot."""
        schema, table = self.config.schema_and_table
        if missing := [name for name in dict.fromkeys([*key, *self.config.mapping.columns]) if name not in types]:
            raise ConfigurationError(
                f"table {schema}.{table} has no column {', '.join(missing)}; it has {', '.join(types)}",
                code="NO_SUCH_COLUMN",
                remedy="Remove the source and add it with the columns that the table has.",
            )
        return TableShape(schema, table, types, key)

    async def _can_resume(self) -> bool:
        """Whether the slot goes on where we left it: another one of its name, or one that others read too, is ahead of us."""
        notes, slot = await self.store.fetch_notes(self._name), await self.reader.fetch_slot()
        last_sequence = notes.get(POSITION_KEY, {}).get("sequence", 0)
        can_resume = (
            notes.get(SNAPSHOT_KEY, {}).get("epoch") == self.source.epoch and slot.exists and not slot.is_lost and slot.confirmed_sequence <= last_sequence
        )
        if can_resume:
            self._check_not_behind(slot.end_sequence, last_sequence)
        return can_resume

    async def _read_snapshot(self, shape: TableShape) -> None:
        await self._store_status("snapshot")
        async with self.reader.open_snapshot() as snapshot:
            await self._check_not_restored(snapshot.sequence)
            async for rows in snapshot.rows:
                await self._apply([shape.build_record("r", row, snapshot.sequence, snapshot="true") for row in rows])
            await self.applier.end_snapshot(f"{shape.schema}.{shape.table}", (self.source.epoch, snapshot.sequence))
            slot = await self.reader.fetch_slot()
        await self.store.set_note(self._name, POSITION_KEY, {"epoch": self.source.epoch, "sequence": slot.confirmed_sequence})
        await self.store.set_note(self._name, SNAPSHOT_KEY, {"epoch": self.source.epoch, "sequence": snapshot.sequence})

    def _check_slot_owner(self, advanced: int, last_sequence: int) -> None:
        if advanced > last_sequence:
            raise ConfigurationError(
                f"the slot of source {self._name} is at position {advanced} and we left it at {last_sequence}: it was made anew, or somebody else reads it",
                code="SLOT_TAKEN",
                remedy="Nothing, if that was once: the table is read anew. Else give the source, or that of another installation, a slot of its own (--slot).",
            )

    async def _check_not_restored(self, sequence: int) -> None:
        """A restored database begins at positions that it had before: what it says would lose against what it said then."""
        position = (await self.store.fetch_notes(self._name)).get(POSITION_KEY, {})
        if position.get("epoch") == self.source.epoch:
            self._check_not_behind(sequence, position["sequence"])

    def _check_not_behind(self, sequence: int, last_sequence: int) -> None:
        if last_sequence > sequence:
            raise ConfigurationError(
                f"the database of source {self._name} is at position {sequence}, it was at {last_sequence} before: it was restored",
                code="SOURCE_WENT_BACK",
                remedy=f"anabranch source reset {self._name}",
            )

    async def _stream(self, decoder: PgOutputDecoder) -> None:
        last_sequence = (await self.store.fetch_notes(self._name))[POSITION_KEY]["sequence"]
        while True:
            async with self.reader.peek(PEEK_LIMIT) as peeked_changes:
                self._check_slot_owner(peeked_changes.confirmed_sequence, last_sequence)
                self._check_not_behind(peeked_changes.end_sequence, last_sequence)
                reached_sequence, has_changes = peeked_changes.end_sequence, False
                async for messages in peeked_changes.batches:
                    await self._apply([record for message in messages for record in decoder.decode(message.sequence, message.payload)])
                    reached_sequence, has_changes = messages[-1].sequence, True
            await self.store.set_note(self._name, POSITION_KEY, {"epoch": self.source.epoch, "sequence": reached_sequence})
            await self.reader.advance(reached_sequence)
            last_sequence = reached_sequence
            if not has_changes:
                await asyncio.sleep(self.poll_s)

    async def _apply(self, records: Sequence[Record]) -> None:
        change_events: list[ChangeEvent] = []
        for record in records:
            try:
                change_events += parse_change_events(record, self.source.epoch, self.config.mapping)
            except PermanentError as error:
                await self._report_rejected({"": error})
        await self._report_rejected(await self.applier.apply(change_events))

    async def _report_rejected(self, rejected: Mapping[str, MalformedEvent | PermanentError]) -> None:
        """There is no record to bury: the last refusal stands in the source's status."""
        for key, error in rejected.items():
            log.warning("row refused", source=self._name, key=key, code=error.code, detail=error.detail)
            await self._store_status("streaming", refused={"key": key, "code": error.code, "detail": error.detail, "remedy": error.remedy})

    async def _store_status(self, state: str, **fields: Any) -> None:
        await self.store.set_note(self._name, STATUS_KEY, {"state": state, **fields})

    @property
    def _name(self) -> str:
        return self.source.spec.name
