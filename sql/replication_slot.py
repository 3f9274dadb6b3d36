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
from schemas.ports.sources import LogicalMessage, PeekedChanges, ReplicationSlot, TableSnapshot
from sql.errors import translate_database_errors
from sql.query_loader import load_query

TEXT_FORMAT_SETTINGS: Mapping[str, str] = {"timezone": "UTC", "datestyle": "ISO", "bytea_output": "hex", "intervalstyle": "iso_8601", "extra_float_digits": "1"}
PAGE_ROWS = 500
APPLICATION_NAME = "anabranch source"


class PgChangeReader:
    """See `schemas.ports.sources.ChangeReader`. `name` is that of the slot and of the publication."""

    def __init__(self, dsn: str, schema: str, table: str, name: str) -> None:
        self._dsn, self._schema, self._table, self._name = dsn, schema, table, name
        self._connection: asyncpg.Connection | None = None

    async def fetch_columns(self) -> tuple[dict[str, int], list[str]]:
        rows = await self._fetch(load_query("table_columns"), self._schema, self._table)
        if not rows:
            raise ConfigurationError(f"there is no table {self._schema}.{self._table}", code="NO_SUCH_TABLE", remedy="Name it as schema.table.")
        return {row["name"]: row["oid"] for row in rows}, [row["name"] for row in sorted(rows, key=lambda row: row["in_key"] or 0) if row["in_key"]]

    async def fetch_slot(self) -> ReplicationSlot:
        [row] = await self._fetch(load_query("slot_state"), self._name, self._schema, self._table)
        is_lost = row["wal_status"] == "lost" or not row["published"]
        return ReplicationSlot(row["wal_status"] is not None, is_lost, confirmed_sequence=int(row["advanced"] or 0), end_sequence=int(row["flushed"]))

    @asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator[TableSnapshot]:
        await self._drop_slot()
        await self._publish()
        with _translate_source_errors():
            maker = await self._connect(replication="database")
        try:
            exported = await self._export_snapshot(maker)
            row = await self._fetch("select restart_lsn - '0/0'::pg_lsn as sequence from pg_replication_slots where slot_name = $1", self._name)
            yield TableSnapshot(int(row[0]["sequence"]), self._iterate_rows(exported))
        finally:
            maker.terminate()

    @asynccontextmanager
    async def peek(self, limit: int) -> AsyncIterator[PeekedChanges]:
        [slot_row] = await self._fetch(load_query("slot_state"), self._name, self._schema, self._table)
        if not slot_row["published"]:
            raise ConfigurationError(
                f"changes of {self._schema}.{self._table} are not published any more: the table or publication {self._name} was dropped, or made anew",
                code="NOT_PUBLISHED",
                remedy="Nothing, if the account may publish the table: it is read anew. Else its owner does: "
                f"alter publication {self._name} add table {self._schema}.{self._table}",
            )
        await self._fetch(load_query("peek_changes"), self._name, limit, self._name)
        try:
            yield PeekedChanges(int(slot_row["advanced"] or 0), int(slot_row["flushed"]), self._iterate_changes())
        finally:
            await self._execute("close changes")

    async def _iterate_changes(self) -> AsyncIterator[Sequence[LogicalMessage]]:
        """The server keeps the rest meanwhile: a transaction may be larger than our memory."""
        while rows := await self._fetch(f"fetch {PAGE_ROWS} from changes"):
            yield [LogicalMessage(int(row["sequence"]), row["data"]) for row in rows]

    async def advance(self, sequence: int) -> None:
        await self._fetch("select pg_replication_slot_advance($1, '0/0'::pg_lsn + $2::numeric)", self._name, sequence)

    async def drop_slot(self) -> None:
        await self._drop_slot()
        await self._execute(f"drop publication if exists {_quote_identifier(self._name)}")

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _export_snapshot(self, maker: asyncpg.Connection) -> str:
        snapshot_name: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def listen(_: object, message: asyncpg.PostgresLogMessage) -> None:
            if not snapshot_name.done():
                snapshot_name.set_result(str(message.message))

        maker.add_log_listener(listen)
        with _translate_source_errors():
            await maker.execute("begin isolation level repeatable read read only")
            await maker.execute(f"CREATE_REPLICATION_SLOT {_quote_identifier(self._name)} LOGICAL pgoutput USE_SNAPSHOT")
            await maker.execute("do $$ begin raise notice '%', pg_export_snapshot(); end $$")
            return await asyncio.wait_for(snapshot_name, 10)

    async def _iterate_rows(self, exported: str) -> AsyncIterator[Sequence[Mapping[str, str | None]]]:
        """On a connection of its own, as everybody saw the table when the slot was made."""
        types, _ = await self.fetch_columns()
        selected = ", ".join(f"{_quote_identifier(name)}::text" for name in types)
        with _translate_source_errors():
            connection = await self._connect()
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    await connection.execute(f"set transaction snapshot '{exported}'")
                    cursor = await connection.cursor(f"select {selected} from {_quote_identifier(self._schema)}.{_quote_identifier(self._table)}")
                    while page := await cursor.fetch(PAGE_ROWS):
                        yield [dict(zip(types, row.values(), strict=True)) for row in page]
            finally:
                connection.terminate()

    async def _publish(self) -> None:
        [state] = await self._fetch(load_query("slot_state"), self._name, self._schema, self._table)
        if state["published"]:
            return
        table = f"table {_quote_identifier(self._schema)}.{_quote_identifier(self._table)}"
        if await self._fetch("select 1 from pg_publication where pubname = $1", self._name):
            await self._execute(f"alter publication {_quote_identifier(self._name)} add {table}")
        else:
            await self._execute(f"create publication {_quote_identifier(self._name)} for {table} with (publish_via_partition_root = true)")

    async def _drop_slot(self) -> None:
        await self._fetch("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1", self._name)

    async def _execute(self, text: str) -> None:
        with _translate_source_errors():
            await (await self._ensure_connection()).execute(text)

    async def _fetch(self, text: str, *parameters: Any) -> list[asyncpg.Record]:
        with _translate_source_errors():
            return list(await (await self._ensure_connection()).fetch(text, *parameters))

    async def _ensure_connection(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    async def _connect(self, **settings: str) -> asyncpg.Connection:
        return await asyncpg.connect(
            self._dsn, server_settings={**TEXT_FORMAT_SETTINGS, "application_name": APPLICATION_NAME, **settings}, statement_cache_size=0
        )


@contextmanager
def _translate_source_errors() -> Iterator[None]:
    """What their database refuses is for a person to mend; what passes is waited for."""
    try:
        with translate_database_errors():
            yield
    except AnabranchError:
        raise
    except (asyncpg.PostgresError, ValueError) as error:
        raise ConfigurationError(f"the source's database refuses: {error}", code="SOURCE_REFUSED", remedy=_choose_remedy(error)) from error


def _choose_remedy(error: Exception) -> str:
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


def _quote_identifier(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
