"""Read one table of a source's database by logical decoding: a slot, its snapshot, its changes.

asyncpg does not implement the replication protocol, but a connection opened with
`replication=database` accepts simple statements. The slot is created on such a connection with
USE_SNAPSHOT, so that its snapshot becomes the transaction's. The exported snapshot's name is
returned in a notice, since simple statements return no rows to asyncpg. Another connection reads
the table in that snapshot, and SQL functions then poll the changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from schemas.errors import AnabranchError, ConfigurationError
from schemas.ports.sources import LogicalMessage, PeekedChanges, ReplicationSlot, TableSnapshot
from sql.database import load_query
from sql.errors import translate_database_errors

TEXT_FORMAT_SETTINGS: Mapping[str, str] = {
    # Values are read as text, so their format must not depend on the source's settings.
    "timezone": "UTC",
    "datestyle": "ISO",
    "bytea_output": "hex",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
}
PAGE_ROWS = 500
APPLICATION_NAME = "anabranch source"


class PgChangeReader:
    """Implements `schemas.ports.sources.ChangeReader`. `name` names both the slot and the
    publication.
    """

    def __init__(self, dsn: str, schema: str, table: str, name: str) -> None:
        self._dsn, self._schema, self._table, self._name = dsn, schema, table, name
        self._connection: asyncpg.Connection | None = None

    async def fetch_columns(self) -> tuple[dict[str, int], list[str]]:
        rows = await self._fetch(load_query("table_columns"), self._schema, self._table)
        if not rows:
            raise ConfigurationError(
                f"Unknown table {self._schema}.{self._table}.",
                code="NO_SUCH_TABLE",
                remedy="Name it as schema.table.",
            )
        return {row["name"]: row["oid"] for row in rows}, [
            row["name"] for row in sorted(rows, key=lambda row: row["in_key"] or 0) if row["in_key"]
        ]

    async def fetch_slot(self) -> ReplicationSlot:
        [row] = await self._fetch(load_query("slot_state"), self._name, self._schema, self._table)
        is_lost = row["wal_status"] == "lost" or not row["published"]
        return ReplicationSlot(
            row["wal_status"] is not None,
            is_lost,
            confirmed_sequence=int(row["advanced"] or 0),
            end_sequence=int(row["flushed"]),
        )

    @asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator[TableSnapshot]:
        await self._drop_slot()
        # Before the slot: logical decoding finds the publication as of each change.
        await self._publish()
        with _translate_source_errors():
            slot_connection = await self._connect(replication="database")
        try:
            exported = await self._export_snapshot(slot_connection)
            row = await self._fetch(load_query("slot_start"), self._name)
            yield TableSnapshot(int(row[0]["sequence"]), self._iterate_rows(exported))
        finally:
            # Ends the transaction that exported the snapshot; all rows are read by now.
            slot_connection.terminate()

    @asynccontextmanager
    async def peek(self, limit: int) -> AsyncIterator[PeekedChanges]:
        [slot_row] = await self._fetch(
            load_query("slot_state"), self._name, self._schema, self._table
        )
        if not slot_row["published"]:
            raise ConfigurationError(
                f"Publication {self._name} no longer contains {self._schema}.{self._table}: the "
                "table or the publication was dropped or recreated.",
                code="NOT_PUBLISHED",
                remedy="If the account may publish the table, it is read again without action. "
                "Otherwise run as its owner: "
                f"alter publication {self._name} add table {self._schema}.{self._table}",
            )
        await self._fetch(load_query("peek_changes"), self._name, limit, self._name)
        try:
            yield PeekedChanges(
                int(slot_row["advanced"] or 0), int(slot_row["flushed"]), self._iterate_changes()
            )
        finally:
            # The cursor is held beyond its transaction and keeps its result on the server.
            await self._execute("close changes")

    async def _iterate_changes(self) -> AsyncIterator[Sequence[LogicalMessage]]:
        """Yield changes page by page from a server-side cursor, since a transaction may exceed our
        memory.
        """
        while rows := await self._fetch(f"fetch {PAGE_ROWS} from changes"):
            yield [LogicalMessage(int(row["sequence"]), row["data"]) for row in rows]

    async def advance(self, sequence: int) -> None:
        await self._fetch(load_query("advance_slot"), self._name, sequence)

    async def drop_slot(self) -> None:
        await self._drop_slot()
        await self._execute(f"drop publication if exists {_quote_identifier(self._name)}")

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _export_snapshot(self, slot_connection: asyncpg.Connection) -> str:
        snapshot_name: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def listen(_: object, message: asyncpg.PostgresLogMessage) -> None:
            if not snapshot_name.done():
                snapshot_name.set_result(str(message.message))

        slot_connection.add_log_listener(listen)
        with _translate_source_errors():
            await slot_connection.execute("begin isolation level repeatable read read only")
            await slot_connection.execute(
                f"CREATE_REPLICATION_SLOT {_quote_identifier(self._name)} LOGICAL pgoutput "
                "USE_SNAPSHOT"
            )
            await slot_connection.execute(
                "do $$ begin raise notice '%', pg_export_snapshot(); end $$"
            )
            async with asyncio.timeout(10):
                return await snapshot_name

    async def _iterate_rows(
        self, exported: str
    ) -> AsyncIterator[Sequence[Mapping[str, str | None]]]:
        """Yield the table's rows in the slot's snapshot, on a separate connection."""
        types, _ = await self.fetch_columns()
        selected = ", ".join(f"{_quote_identifier(name)}::text" for name in types)
        with _translate_source_errors():
            connection = await self._connect()
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    await connection.execute(f"set transaction snapshot '{exported}'")
                    cursor = await connection.cursor(
                        f"select {selected} from "
                        f"{_quote_identifier(self._schema)}.{_quote_identifier(self._table)}"
                    )
                    while page := await cursor.fetch(PAGE_ROWS):
                        yield [dict(zip(types, row.values(), strict=True)) for row in page]
            finally:
                connection.terminate()

    async def _publish(self) -> None:
        [state] = await self._fetch(load_query("slot_state"), self._name, self._schema, self._table)
        if state["published"]:
            return
        table = f"table {_quote_identifier(self._schema)}.{_quote_identifier(self._table)}"
        if await self._fetch(load_query("has_publication"), self._name):
            await self._execute(f"alter publication {_quote_identifier(self._name)} add {table}")
        else:
            await self._execute(
                f"create publication {_quote_identifier(self._name)} for {table} with "
                "(publish_via_partition_root = true)"
            )

    async def _drop_slot(self) -> None:
        await self._fetch(load_query("drop_slot"), self._name)

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
            self._dsn,
            server_settings={
                **TEXT_FORMAT_SETTINGS,
                "application_name": APPLICATION_NAME,
                **settings,
            },
            statement_cache_size=0,
        )


@contextmanager
def _translate_source_errors() -> Iterator[None]:
    """Raise transient errors as DatabaseUnavailable and all others of the source as
    ConfigurationError.
    """
    try:
        with translate_database_errors():
            yield
    except AnabranchError:
        raise
    except (asyncpg.PostgresError, ValueError) as error:
        raise ConfigurationError(
            f"The source's database rejected the request: {error}",
            code="SOURCE_REFUSED",
            remedy=_choose_remedy(error),
        ) from error


def _choose_remedy(error: Exception) -> str:
    match error:
        case asyncpg.InvalidAuthorizationSpecificationError():
            return (
                "Set ANABRANCH_SOURCES__NAME of the worker to the full URL, with user and password."
            )
        case asyncpg.InsufficientPrivilegeError():
            return (
                "Grant the account REPLICATION and SELECT on the table, and let the table's owner "
                "create a publication with the slot's name."
            )
        case asyncpg.ObjectNotInPrerequisiteStateError():
            return "Set wal_level = logical on the source's server and restart it."
        case asyncpg.ConfigurationLimitExceededError():
            return "Raise max_replication_slots on the source's server, or drop an unused slot."
    return "Fix the cause in the source's database. The worker retries on its own."


def _quote_identifier(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
