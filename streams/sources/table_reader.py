"""Postgres table source: a snapshot, then the changes from its replication slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from schemas.errors import ConfigurationError, MalformedEvent, PermanentError
from schemas.ports.sources import ChangeReader, SourceStore
from schemas.sources import DeclaredSource, PostgresSource
from schemas.topics import Record
from streams.sources.change_applier import ChangeApplier
from streams.sources.debezium import ChangeEvent, parse_change_events
from streams.sources.pgoutput import PgOutputDecoder, TableShape

log = structlog.get_logger(__name__)
# A lower bound: the slot returns whole transactions.
PEEK_LIMIT = 2000
SNAPSHOT_KEY, POSITION_KEY, STATUS_KEY = "snapshot", "position", "status"


@dataclass(slots=True)
class TableReader:
    """Runs until cancelled, in one process at a time.

    Changes that were applied before the slot was advanced are read again after a crash and have no
    effect.
    """

    source: DeclaredSource
    config: PostgresSource
    applier: ChangeApplier
    store: SourceStore
    reader: ChangeReader
    poll_s: float = 0.5

    async def run(self) -> None:
        # First: an earlier process may have stored events without publishing them.
        await self.applier.emit_pending()
        shape = await self._fetch_shape()
        if not await self._can_resume():
            await self._read_snapshot(shape)
        await self._store_status("streaming")
        await self._stream(
            PgOutputDecoder(
                *self.config.schema_and_table, partial(self._build_shape, key=shape.key)
            )
        )

    async def _fetch_shape(self) -> TableShape:
        types, key = await self.reader.fetch_columns()
        schema, table = self.config.schema_and_table
        if not key:
            remedy = f"alter table {schema}.{table} add primary key (…)"
            raise ConfigurationError(
                f"Table {schema}.{table} has no primary key.", code="NO_PRIMARY_KEY", remedy=remedy
            )
        return self._build_shape(types, key=key)

    def _build_shape(self, types: Mapping[str, int], *, key: Sequence[str]) -> TableShape:
        """Build the shape of the table.

        Raises ConfigurationError if a mapped column is missing; changes stay in the slot.
        """
        schema, table = self.config.schema_and_table
        if missing := [
            name
            for name in dict.fromkeys([*key, *self.config.mapping.columns])
            if name not in types
        ]:
            raise ConfigurationError(
                f"Table {schema}.{table} has no column {', '.join(missing)}. Its columns: "
                f"{', '.join(types)}.",
                code="NO_SUCH_COLUMN",
                remedy="Remove the source and add it again with columns that the table has.",
            )
        return TableShape(schema, table, types, key)

    async def _can_resume(self) -> bool:
        """Return whether the slot continues at our position."""
        # A slot that was recreated or has another reader is ahead of us: the changes in between are
        # lost.
        notes, slot = await self.store.fetch_notes(self._name), await self.reader.fetch_slot()
        last_sequence = notes.get(POSITION_KEY, {}).get("sequence", 0)
        can_resume = (
            notes.get(SNAPSHOT_KEY, {}).get("epoch") == self.source.epoch
            and slot.exists
            and not slot.is_lost
            and slot.confirmed_sequence <= last_sequence
        )
        if can_resume:
            self._check_not_behind(slot.end_sequence, last_sequence)
        return can_resume

    async def _read_snapshot(self, shape: TableShape) -> None:
        await self._store_status("snapshot")
        async with self.reader.open_snapshot() as snapshot:
            # A restored database reuses positions, and its changes would lose against the ones
            # stored for them.
            position = (await self.store.fetch_notes(self._name)).get(POSITION_KEY, {})
            if position.get("epoch") == self.source.epoch:
                self._check_not_behind(snapshot.sequence, position["sequence"])
            async for rows in snapshot.rows:
                await self._apply(
                    [
                        shape.build_record("r", row, snapshot.sequence, snapshot="true")
                        for row in rows
                    ]
                )
            # Rows that this snapshot did not read were deleted before it began.
            await self.applier.end_snapshot(
                f"{shape.schema}.{shape.table}", (self.source.epoch, snapshot.sequence)
            )
            slot = await self.reader.fetch_slot()
        await self.store.set_note(
            self._name,
            POSITION_KEY,
            {"epoch": self.source.epoch, "sequence": slot.confirmed_sequence},
        )
        await self.store.set_note(
            self._name, SNAPSHOT_KEY, {"epoch": self.source.epoch, "sequence": snapshot.sequence}
        )

    def _check_not_behind(self, sequence: int, last_sequence: int) -> None:
        """Raise ConfigurationError if the database went back to an earlier position."""
        if last_sequence > sequence:
            raise ConfigurationError(
                f"The database of source {self._name} is at position {sequence}, behind "
                f"{last_sequence}: it was restored from a backup.",
                code="SOURCE_WENT_BACK",
                remedy=f"anabranch source reset {self._name}",
            )

    async def _stream(self, decoder: PgOutputDecoder) -> None:
        last_sequence = (await self.store.fetch_notes(self._name))[POSITION_KEY]["sequence"]
        while True:
            async with self.reader.peek(PEEK_LIMIT) as peeked_changes:
                if peeked_changes.confirmed_sequence > last_sequence:
                    raise ConfigurationError(
                        f"The slot of source {self._name} is at position "
                        f"{peeked_changes.confirmed_sequence}, ahead of {last_sequence}: it was "
                        "recreated or has another reader.",
                        code="SLOT_TAKEN",
                        remedy=(
                            "The table is read again. If this happens repeatedly, give this source "
                            "or the other reader a slot of its own (--slot)."
                        ),
                    )
                self._check_not_behind(peeked_changes.end_sequence, last_sequence)
                # Without changes the slot moves to the end of the log, or a quiet table would
                # retain it.
                reached_sequence, has_changes = peeked_changes.end_sequence, False
                async for messages in peeked_changes.batches:
                    await self._apply(
                        [
                            record
                            for message in messages
                            for record in decoder.decode(message.sequence, message.payload)
                        ]
                    )
                    reached_sequence, has_changes = messages[-1].sequence, True
            # Note first: a slot ahead of the note would look recreated.
            await self.store.set_note(
                self._name, POSITION_KEY, {"epoch": self.source.epoch, "sequence": reached_sequence}
            )
            # Only now may the server drop the log of these changes: everything is stored and noted.
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

    async def _report_rejected(
        self, rejected: Mapping[str, MalformedEvent | PermanentError]
    ) -> None:
        """Store the last rejected row in the source's status: a dead letter would need a record."""
        for key, error in rejected.items():
            log.warning(
                "row_rejected", source=self._name, key=key, code=error.code, detail=error.detail
            )
            await self._store_status(
                "streaming",
                refused={
                    "key": key,
                    "code": error.code,
                    "detail": error.detail,
                    "remedy": error.remedy,
                },
            )

    async def _store_status(self, state: str, **fields: Any) -> None:
        await self.store.set_note(self._name, STATUS_KEY, {"state": state, **fields})

    @property
    def _name(self) -> str:
        return self.source.spec.name
