"""Read declared sources, and store the state of their readers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg

from schemas.ports.sources import EndedSnapshot, UntrackedDocument
from schemas.sources import (
    DeclaredSource,
    EmittedState,
    ReleasedId,
    RowChange,
    RowState,
    SequenceMark,
    SequenceReset,
    SourceSpec,
    TableFloors,
)
from sql.database import Connection, PgStore, Pool, hold_session_lock, load_query, read_values

CHANGE_FIELDS = (
    *("key", "epoch", "sequence", "is_snapshot_read", "table", "is_deleted", "columns"),
    *("unchanged_columns", "old_key"),
)
EMITTED_FIELDS = ("table", "epoch", "sequence", "step", "digest", "external_id", "is_live")


class PgSources(PgStore):
    """Implements `schemas.ports.sources.DeclaredSources`. Every method may raise
    DatabaseUnavailable.
    """

    async def fetch_sources(self) -> list[DeclaredSource]:
        rows = await self._fetch("declared_sources")
        return [
            DeclaredSource(
                spec=SourceSpec.model_validate(row["spec"]),
                epoch=row["epoch"],
                resets=tuple(SequenceReset.model_validate(reset) for reset in row["resets"]),
                removed=row["removed"],
                withdraw=row["withdraw"],
            )
            for row in rows
        ]

    async def fetch_epochs(self) -> dict[str, int]:
        """Return ce_source → epoch, for sources that were reset at least once."""
        return await self._fetch_pairs("source_epochs")

    async def fetch_external_ids(self, ce_source: str, after: str, limit: int) -> list[str]:
        return await self._fetch_column("source_documents", ce_source, after, limit)

    async def list_overview(self) -> list[dict[str, Any]]:
        """Return every source with its document counts and the state of its reader."""
        return await self._fetch_bodies("source_overview")

    async def has_numbered_documents(self, ce_source: str) -> bool:
        """Return whether any document comes from a source of this name that numbers its changes."""
        return bool(await self._fetch("has_numbered_documents", ce_source))


class PgSourceTransaction:
    """Implements `schemas.ports.sources.SourceTransaction`."""

    def __init__(self, connection: Connection, source: str) -> None:
        self._connection, self._source = connection, source

    async def fetch_floors(self) -> Mapping[str, TableFloors]:
        rows = await self._connection.fetch(load_query("source_table_floors"), self._source)
        return {
            row["table_name"]: TableFloors(_parse_mark(row["truncated"]), _parse_mark(row["read"]))
            for row in rows
        }

    async def fetch_rows(self, keys: Collection[str]) -> dict[str, RowState]:
        linked = [
            row["key"]
            for row in await self._connection.fetch(
                load_query("source_linked"), self._source, list(keys)
            )
        ]
        # Linked keys too: the values of unchanged columns may be stored under a former key.
        changes: dict[str, list[RowChange]] = {key: [] for key in linked}
        for row in await self._connection.fetch(load_query("source_changes"), self._source, linked):
            changes[row["key"]].append(_parse_change(row))
        emitted_rows = await self._connection.fetch(load_query("source_rows"), self._source, linked)
        by_key = {row["key"]: _parse_emitted(row) for row in emitted_rows}
        return {key: RowState(tuple(changes[key]), by_key.get(key)) for key in linked}

    async def save_changes(
        self, changes: Sequence[RowChange], emitted: Mapping[str, EmittedState]
    ) -> None:
        if changes:
            await self._connection.executemany(
                load_query("add_source_changes"),
                [(self._source, *read_values(change, *CHANGE_FIELDS)) for change in changes],
            )
            await self._connection.execute(
                load_query("prune_source_changes"),
                self._source,
                list({change.key for change in changes}),
            )
        if emitted:
            await self._connection.executemany(
                load_query("upsert_source_row"),
                [_to_emitted_values(self._source, key, row) for key, row in emitted.items()],
            )

    async def raise_floors(
        self,
        table: str,
        *,
        truncated_at: SequenceMark | None = None,
        snapshot_started_at: SequenceMark | None = None,
    ) -> None:
        await self._connection.execute(
            load_query("source_floors"),
            self._source,
            table,
            list(truncated_at or (0, 0)),
            list(snapshot_started_at or (0, 0)),
        )

    async def record_progress(self, topic: str, partition: int, next_offset: int) -> None:
        await self._connection.execute(
            load_query("advance_source_progress"), self._source, topic, partition, next_offset
        )

    async def record_snapshot_end(
        self, table: str, mark: SequenceMark, topic: str, end_offsets: Mapping[int, int]
    ) -> None:
        await self._connection.execute(
            load_query("record_snapshot_end"),
            self._source,
            table,
            list(mark),
            topic,
            {str(key): end for key, end in end_offsets.items()},
        )


class PgSourceStore(PgStore):
    """Implements `schemas.ports.sources.SourceStore`. Sessions have connections of their own."""

    def __init__(self, pool: Pool, dsn: str) -> None:
        super().__init__(pool)
        self._dsn = dsn

    @asynccontextmanager
    async def begin_transaction(self, source: str) -> AsyncIterator[PgSourceTransaction]:
        await self.fetch_state_id(source)
        async with self._transaction() as connection:
            # Locks the source's row until the commit, which serializes its transactions.
            await connection.execute(load_query("touch_source"), source)
            yield PgSourceTransaction(connection, source)

    async def mark_emitted(self, source: str, emitted: Mapping[str, EmittedState]) -> None:
        rows = [
            (source, key, row.epoch, row.sequence, row.step, row.digest)
            for key, row in emitted.items()
        ]
        await self._execute_many("mark_source_row_published", rows)

    async def fetch_live_below(
        self, source: str, table: str, mark: SequenceMark, after: str, limit: int
    ) -> list[str]:
        return await self._fetch_column("source_live_below", source, table, *mark, after, limit)

    async def fetch_pending(self, source: str, after: str, limit: int) -> list[str]:
        return await self._fetch_column("pending_source_rows", source, after, limit)

    async def fetch_untracked(
        self, source: str, ce_source: str, mark: SequenceMark, after: str, limit: int
    ) -> list[UntrackedDocument]:
        rows = await self._fetch(
            "untracked_source_documents", source, ce_source, list(mark), after, limit
        )
        return [UntrackedDocument(row["external_id"], _parse_mark(row["mark"])) for row in rows]

    async def fetch_ended_snapshots(self, source: str) -> list[EndedSnapshot]:
        rows = await self._fetch("source_ended_snapshots", source)
        return [
            EndedSnapshot(
                row["table_name"],
                _parse_mark(row["ended"]),
                row["topic"],
                {int(partition): (start, end) for partition, (start, end) in row["unread"].items()},
            )
            for row in rows
        ]

    async def mark_snapshot_swept(self, source: str, table: str, mark: SequenceMark) -> None:
        await self._execute("end_snapshot_sweep", source, table, list(mark))

    async def fetch_state_id(self, source: str) -> str:
        await self._execute("add_source_state", source)
        return str(await self._fetch_value("source_state_id", source))

    async def has_state(self, source: str) -> bool:
        """Return whether the source has any stored state."""
        return bool(await self._fetch("has_source_state", source))

    async def record_change_time(self, source: str) -> None:
        await self._execute("touch_source", source)

    async def set_note(self, source: str, key: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            await self._execute("delete_source_note", source, key)
        else:
            await self.set_notes(source, {key: value})

    async def set_notes(self, source: str, notes: Mapping[str, Mapping[str, Any]]) -> None:
        if notes:
            await self._execute(
                "upsert_source_notes", source, list(notes), list(map(dict, notes.values()))
            )

    async def fetch_notes(self, source: str) -> dict[str, dict[str, Any]]:
        return await self._fetch_pairs("source_notes", source)

    async def delete_state(self, source: str) -> None:
        await self._execute("delete_source_state", source)

    def open_session(self, owner: UUID) -> AbstractAsyncContextManager[asyncio.Event]:
        return hold_session_lock(self._dsn, f"anabranch sources {owner}")

    async def acquire_lease(self, source: str, owner: UUID, lease_s: float) -> bool:
        await self.fetch_state_id(source)
        return bool(await self._fetch("acquire_source_lease", source, owner, lease_s))

    async def release_lease(self, source: str, owner: UUID) -> None:
        await self._execute("release_source_lease", source, owner)


def _parse_mark(numbers: Sequence[int]) -> SequenceMark:
    return numbers[0], numbers[1]


def _parse_change(row: asyncpg.Record) -> RowChange:
    return RowChange(**{**row, "unchanged_columns": tuple(row["unchanged_columns"])})


def _parse_emitted(row: asyncpg.Record) -> EmittedState:
    return EmittedState(
        **{name: row[name] for name in EMITTED_FIELDS},
        released_ids=tuple(
            ReleasedId(external_id, (epoch, sequence), step)
            for external_id, epoch, sequence, step in map(json.loads, row["released_ids"])
        ),
        is_pending=row["is_pending"],
    )


def _to_emitted_values(source: str, key: str, emitted: EmittedState) -> tuple[Any, ...]:
    released_ids = [
        json.dumps([released.external_id, *released.mark, released.step])
        for released in emitted.released_ids
    ]
    values = read_values(emitted, *EMITTED_FIELDS)
    return source, key, *values, released_ids, emitted.is_pending
