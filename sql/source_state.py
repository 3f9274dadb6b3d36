"""What readers of sources remember."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg

from schemas.ports.sources import EndedSnapshot, Stranger
from schemas.sources import Change, Floors, Left, Mark, RowState, Said
from sql.errors import database_errors
from sql.pool import Connection, Pool
from sql.statements import statement


class PgTurn:
    """See `schemas.ports.sources.Turn`."""

    def __init__(self, connection: Connection, source: str) -> None:
        self._connection, self._source = connection, source

    async def floors(self) -> Mapping[str, Floors]:
        rows = await self._connection.fetch("select tbl, truncated, read from source_tables where source = $1", self._source)
        return {row["tbl"]: Floors(_mark(row["truncated"]), _mark(row["read"])) for row in rows}

    async def rows(self, keys: Collection[str]) -> dict[str, RowState]:
        linked = [row["key"] for row in await self._connection.fetch(statement("source_linked"), self._source, list(keys))]
        changes: dict[str, list[Change]] = {key: [] for key in linked}
        for row in await self._connection.fetch(statement("source_changes"), self._source, linked):
            changes[row["key"]].append(_change(row))
        said = await self._connection.fetch("select * from source_rows where source = $1 and key = any($2::text[])", self._source, linked)
        by_key = {row["key"]: _said(row) for row in said}
        return {key: RowState(tuple(changes[key]), by_key.get(key)) for key in linked}

    async def save(self, changes: Sequence[Change], said: Mapping[str, Said]) -> None:
        if changes:
            await self._connection.executemany(statement("add_source_changes"), [_change_values(self._source, change) for change in changes])
            await self._connection.execute(statement("forget_source_changes"), self._source, list({change.key for change in changes}))
        if said:
            await self._connection.executemany(statement("say_source_row"), [_said_values(self._source, key, row) for key, row in said.items()])

    async def raise_floors(self, table: str, *, truncated: Mark | None = None, read: Mark | None = None) -> None:
        await self._connection.execute(statement("source_floors"), self._source, table, list(truncated or (0, 0)), list(read or (0, 0)))

    async def passed(self, topic: str, partition: int, next_offset: int) -> None:
        await self._connection.execute(statement("source_passed"), self._source, topic, partition, next_offset)

    async def snapshot_ends(self, table: str, mark: Mark, topic: str, ends: Mapping[int, int]) -> None:
        await self._connection.execute(statement("source_snapshot_ends"), self._source, table, list(mark), topic, {str(key): end for key, end in ends.items()})


class PgSourceStore:
    """See `schemas.ports.sources.SourceStore`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[PgTurn]:
        with database_errors():
            await self.reader(source)
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("update source_states set passed_at = clock_timestamp() where source = $1", source)
                yield PgTurn(connection, source)

    async def told(self, source: str, said: Mapping[str, Said]) -> None:
        rows = [(source, key, row.epoch, row.sequence, row.step, row.digest) for key, row in said.items()]
        with database_errors():
            await self._pool.executemany(
                "update source_rows set owed = false, left_ids = '{}' "
                "where source = $1 and key = $2 and (epoch, sequence, step, digest) = ($3::int, $4::bigint, $5::int, $6::text)",
                rows,
            )

    async def live_below(self, source: str, table: str, mark: Mark, after: str, limit: int) -> list[str]:
        return [row["key"] for row in await self._fetch(statement("source_live_below"), source, table, *mark, after, limit)]

    async def owed(self, source: str, after: str, limit: int) -> list[str]:
        rows = await self._fetch("select key from source_rows where source = $1 and owed and key > $2 order by key limit $3", source, after, limit)
        return [row["key"] for row in rows]

    async def strangers(self, source: str, ce_source: str, mark: Mark, after: str, limit: int) -> list[Stranger]:
        rows = await self._fetch(statement("source_strangers"), source, ce_source, list(mark), after, limit)
        return [Stranger(row["external_id"], _mark(row["mark"])) for row in rows]

    async def ended_snapshots(self, source: str) -> list[EndedSnapshot]:
        rows = await self._fetch(statement("source_ended_snapshots"), source)
        return [EndedSnapshot(row["tbl"], _mark(row["ended"]), row["topic"], _unread(row["unread"])) for row in rows]

    async def snapshot_swept(self, source: str, table: str, mark: Mark) -> None:
        with database_errors():
            await self._pool.execute("update source_tables set ended = null where source = $1 and tbl = $2 and ended = $3::bigint[]", source, table, list(mark))

    async def reader(self, source: str) -> str:
        with database_errors():
            await self._pool.execute("insert into source_states (source) values ($1) on conflict do nothing", source)
            return str(await self._pool.fetchval("select reader from source_states where source = $1", source))

    async def remembers(self, source: str) -> bool:
        """Whether anything was ever kept of it."""
        return bool(await self._fetch("select 1 from source_states where source = $1", source))

    async def note_change(self, source: str) -> None:
        with database_errors():
            await self._pool.execute("update source_states set passed_at = clock_timestamp() where source = $1", source)

    async def note(self, source: str, key: str, value: Mapping[str, Any] | None) -> None:
        with database_errors():
            if value is None:
                await self._pool.execute("delete from source_notes where source = $1 and key = $2", source, key)
                return
            await self._pool.execute(
                "insert into source_notes (source, key, value) values ($1, $2, $3) on conflict (source, key) do update set value = excluded.value",
                source,
                key,
                json.loads(json.dumps(value)),
            )

    async def notes(self, source: str) -> dict[str, dict[str, Any]]:
        return {row["key"]: row["value"] for row in await self._fetch("select key, value from source_notes where source = $1", source)}

    async def forget(self, source: str) -> None:
        with database_errors():
            await self._pool.execute(statement("forget_source"), source)

    async def hold(self, source: str, owner: UUID, seconds: float) -> bool:
        await self.reader(source)
        return bool(await self._fetch(statement("hold_source"), source, owner, seconds))

    async def release(self, source: str, owner: UUID) -> None:
        with database_errors():
            await self._pool.execute("update source_states set holder = null where source = $1 and holder = $2", source, owner)

    async def _fetch(self, text: str, *parameters: Any) -> list[asyncpg.Record]:
        with database_errors():
            return list(await self._pool.fetch(text, *parameters))


def _mark(numbers: Sequence[int]) -> Mark:
    return numbers[0], numbers[1]


def _change(row: asyncpg.Record) -> Change:
    return Change(
        key=row["key"],
        table=row["tbl"],
        epoch=row["epoch"],
        sequence=row["sequence"],
        read=row["read"],
        gone=row["gone"],
        columns=row["columns"],
        unknown=tuple(row["unknown"]),
        old_key=row["old_key"],
    )


def _change_values(source: str, change: Change) -> tuple[Any, ...]:
    return (
        *(source, change.key, change.epoch, change.sequence, change.read, change.table, change.gone),
        *(dict(change.columns), list(change.unknown), change.old_key),
    )


def _said(row: asyncpg.Record) -> Said:
    return Said(
        row["tbl"], row["epoch"], row["sequence"], row["step"], row["digest"], row["external_id"], row["live"], tuple(map(_left, row["left_ids"])), row["owed"]
    )


def _said_values(source: str, key: str, said: Said) -> tuple[Any, ...]:
    return (
        *(source, key, said.table, said.epoch, said.sequence, said.step, said.digest, said.external_id, said.live, list(map(_left_text, said.left)), said.owed),
    )


def _unread(ranges: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, int]]:
    return {int(partition): (start, end) for partition, (start, end) in ranges.items()}


def _left_text(left: Left) -> str:
    return json.dumps([left.external_id, *left.mark, left.step])


def _left(text: str) -> Left:
    external_id, epoch, sequence, step = json.loads(text)
    return Left(external_id, (epoch, sequence), step)
