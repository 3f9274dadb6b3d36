"""One table of somebody else's database by logical decoding: a slot, its snapshot, its changes.

asyncpg does not speak the replication protocol, but a connection that asks for it takes simple statements. The slot is made on one (its snapshot becomes
that transaction's, and a notice tells its name), the table is read on another, and changes are then polled by SQL functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from schemas.errors import AnabranchError, ConfigurationError
from schemas.ports.sources import LogicalMessage, PeekedChanges, Slot, TableSnapshot
from sql.errors import database_errors
from sql.statements import statement

READABLE: Mapping[str, str] = {"timezone": "UTC", "datestyle": "ISO", "bytea_output": "hex", "intervalstyle": "iso_8601", "extra_float_digits": "1"}
PAGE = 500
NAME = "anabranch source"


class PgChangeReader:
    """See `schemas.ports.sources.ChangeReader`. `name` is that of the slot and of the publication."""

    def __init__(self, dsn: str, schema: str, table: str, name: str) -> None:
        self._dsn, self._schema, self._table, self._name = dsn, schema, table, name
        self._connection: asyncpg.Connection | None = None

    async def columns(self) -> tuple[dict[str, int], list[str]]:
        rows = await self._fetch(statement("table_columns"), self._schema, self._table)
        if not rows:
            raise ConfigurationError(f"there is no table {self._schema}.{self._table}", code="NO_SUCH_TABLE", remedy="Name it as schema.table.")
        return {row["name"]: row["oid"] for row in rows}, [row["name"] for row in sorted(rows, key=lambda row: row["in_key"] or 0) if row["in_key"]]

    async def slot(self) -> Slot:
        [row] = await self._fetch(statement("slot_state"), self._name, self._schema, self._table)
        lost = row["wal_status"] == "lost" or not row["published"]
        return Slot(row["wal_status"] is not None, lost, advanced=int(row["advanced"] or 0), written=int(row["flushed"]))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[TableSnapshot]:
        await self._drop_slot()
        await self._publish()
        with _foreign_errors():
            maker = await self._connect(replication="database")
        try:
            exported = await self._exported(maker)
            row = await self._fetch("select restart_lsn - '0/0'::pg_lsn as sequence from pg_replication_slots where slot_name = $1", self._name)
            yield TableSnapshot(int(row[0]["sequence"]), self._rows(exported))
        finally:
            maker.terminate()

    @asynccontextmanager
    async def peek(self, limit: int) -> AsyncIterator[PeekedChanges]:
        [before] = await self._fetch(statement("slot_state"), self._name, self._schema, self._table)
        if not before["published"]:
            raise ConfigurationError(
                f"changes of {self._schema}.{self._table} are not published any more: the table or publication {self._name} was dropped, or made anew",
                code="NOT_PUBLISHED",
                remedy="Nothing, if the account may publish the table: it is read anew. Else its owner does: "
                f"alter publication {self._name} add table {self._schema}.{self._table}",
            )
        await self._fetch(statement("peek_changes"), self._name, limit, self._name)
        try:
            yield PeekedChanges(int(before["advanced"] or 0), int(before["flushed"]), self._peeked())
        finally:
            await self._execute("close changes")

    async def _peeked(self) -> AsyncIterator[Sequence[LogicalMessage]]:
        """The server keeps the rest meanwhile: a transaction may be larger than our memory."""
        while rows := await self._fetch(f"fetch {PAGE} from changes"):
            yield [LogicalMessage(int(row["sequence"]), row["data"]) for row in rows]

    async def advance(self, sequence: int) -> None:
        await self._fetch("select pg_replication_slot_advance($1, '0/0'::pg_lsn + $2::numeric)", self._name, sequence)

    async def drop(self) -> None:
        await self._drop_slot()
        await self._execute(f"drop publication if exists {_quoted(self._name)}")

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _exported(self, maker: asyncpg.Connection) -> str:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def listen(_: object, message: asyncpg.PostgresLogMessage) -> None:
            if not told.done():
                told.set_result(str(message.message))

        maker.add_log_listener(listen)
        with _foreign_errors():
            await maker.execute("begin isolation level repeatable read read only")
            await maker.execute(f"CREATE_REPLICATION_SLOT {_quoted(self._name)} LOGICAL pgoutput USE_SNAPSHOT")
            await maker.execute("do $$ begin raise notice '%', pg_export_snapshot(); end $$")
            return await asyncio.wait_for(told, 10)

    async def _rows(self, exported: str) -> AsyncIterator[Sequence[Mapping[str, str | None]]]:
        """On a connection of its own, as everybody saw the table when the slot was made."""
        types, _ = await self.columns()
        selected = ", ".join(f"{_quoted(name)}::text" for name in types)
        with _foreign_errors():
            connection = await self._connect()
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    await connection.execute(f"set transaction snapshot '{exported}'")
                    cursor = await connection.cursor(f"select {selected} from {_quoted(self._schema)}.{_quoted(self._table)}")
                    while page := await cursor.fetch(PAGE):
                        yield [dict(zip(types, row.values(), strict=True)) for row in page]
            finally:
                connection.terminate()

    async def _publish(self) -> None:
        [state] = await self._fetch(statement("slot_state"), self._name, self._schema, self._table)
        if state["published"]:
            return
        table = f"table {_quoted(self._schema)}.{_quoted(self._table)}"
        if await self._fetch("select 1 from pg_publication where pubname = $1", self._name):
            await self._execute(f"alter publication {_quoted(self._name)} add {table}")
        else:
            await self._execute(f"create publication {_quoted(self._name)} for {table} with (publish_via_partition_root = true)")

    async def _drop_slot(self) -> None:
        await self._fetch("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1", self._name)

    async def _execute(self, text: str) -> None:
        with _foreign_errors():
            await (await self._connected()).execute(text)

    async def _fetch(self, text: str, *parameters: Any) -> list[asyncpg.Record]:
        with _foreign_errors():
            return list(await (await self._connected()).fetch(text, *parameters))

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    async def _connect(self, **settings: str) -> asyncpg.Connection:
        return await asyncpg.connect(self._dsn, server_settings={**READABLE, "application_name": NAME, **settings}, statement_cache_size=0)


@contextmanager
def _foreign_errors() -> Iterator[None]:
    """What their database refuses is for a person to mend; what passes is waited for."""
    try:
        with database_errors():
            yield
    except AnabranchError:
        raise
    except (asyncpg.PostgresError, ValueError) as error:
        raise ConfigurationError(f"the source's database refuses: {error}", code="SOURCE_REFUSED", remedy=_remedy(error)) from error


def _remedy(error: Exception) -> str:
    match error:
        case asyncpg.InvalidAuthorizationSpecificationError():
            return "Give the whole address, with user and password, in ANABRANCH_SOURCES__NAME of the worker."
        case asyncpg.InsufficientPrivilegeError():
            return "The account needs the attribute REPLICATION, select on the table, and a publication of the slot's name made by the table's owner."
        case asyncpg.ObjectNotInPrerequisiteStateError():
            return "Set wal_level = logical and restart that server."
        case asyncpg.ConfigurationLimitExceededError():
            return "Raise max_replication_slots there, or drop a slot that nobody reads."
    return "Mend it there; the source is tried again by itself."


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
