"""Open connections and pools with the codecs and session settings that the queries need.

Codecs: vector, halfvec, JSON and regconfig. Settings: search path, custom plans, HNSW search.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import asyncpg
from pgvector.asyncpg import register_vector
from pydantic_core import from_json

from schemas.channels import DEFAULT_EF_SEARCH
from sql.encoding import encode_json
from sql.errors import translate_database_errors
from sql.query_loader import load_query

Pool = asyncpg.Pool
Connection = asyncpg.pool.PoolConnectionProxy | asyncpg.Connection

# The binary format of jsonb begins with this version byte (jsonb_recv).
JSONB_VERSION = b"\x01"
# Types below it have the same ids on all servers (FirstGenbkiObjectId in transam.h).
FIRST_UNFIXED_OID = 10_000
SEARCH_PATH = "anabranch, extensions, public"
SESSION_SETTINGS: Mapping[str, str] = {
    "search_path": SEARCH_PATH,
    # asyncpg prepares every statement, and a generic plan ignores the tenant's share of rows: for a
    # tenant with 0.1 % of the vectors it took 160-280 ms instead of 0.2 ms.
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    "hnsw.ef_search": str(DEFAULT_EF_SEARCH),
    # Without it a filtered scan ends after ef_search rows and returns too few: 1 of 10 for a tenant
    # with 1 %.
    "hnsw.iterative_scan": "relaxed_order",
}
STAGE_SETTINGS: Mapping[str, str] = {"plan_cache_mode": "auto"}
"""Stages repeat a few statements by key: planning each anew takes a third of the server's time."""
QUESTION_SETTINGS: Mapping[str, str] = {
    # The planner does not know that a scan decompresses every tsvector, and reads the whole table
    # for a frequent word: 2.5 times the time of the index.
    "enable_seqscan": "off",
    # Workers shorten one question at the cost of the others.
    "max_parallel_workers_per_gather": "0",
}
ASYNC_COMMIT_SETTINGS: Mapping[str, str] = {"synchronous_commit": "off"}
"""For stages whose log is the same database.

A lost commit loses the reader's cursor as well, so the event is redelivered.
"""


def build_lock_timeout_settings(seconds: float) -> Mapping[str, str]:
    """Return settings that limit lock waits; a statement that exceeds them fails with code
    TABLES_LOCKED.
    """
    return {"lock_timeout": f"{seconds:g}s"}


async def open_pool(
    dsn: str, *, size: int, name: str, settings: Mapping[str, str] | None = None
) -> Pool:
    """Open a pool of at most `size` connections, named `name` in pg_stat_activity.

    Use separate pools for ingest and queries, so that neither starves the other. On a Unix socket
    the server's processes run at the priority of this one, if the account may set it. Raises
    DatabaseUnavailable.
    """
    with translate_database_errors():
        return await asyncpg.create_pool(
            dsn,
            min_size=min(2, size),
            max_size=size,
            init=prepare_local_connection if "?host=/" in dsn else prepare_connection,
            connection_class=UnresetConnection,
            server_settings={**SESSION_SETTINGS, "application_name": name, **(settings or {})},
        )


async def connect(
    dsn: str, *, name: str, settings: Mapping[str, str] | None = None
) -> asyncpg.Connection:
    """Open one connection with the same settings and codecs. Raises DatabaseUnavailable."""
    with translate_database_errors():
        connection = await asyncpg.connect(
            dsn,
            connection_class=UnresetConnection,
            server_settings={**SESSION_SETTINGS, "application_name": name, **(settings or {})},
        )
        try:
            await prepare_connection(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection


async def prepare_local_connection(connection: asyncpg.Connection) -> None:
    await prepare_connection(connection)
    server_pid = connection.get_server_pid()
    # This account may not own the server.
    with suppress(PermissionError, ProcessLookupError):
        if _is_postgres(server_pid):
            os.setpriority(os.PRIO_PROCESS, server_pid, os.getpriority(os.PRIO_PROCESS, 0))


def _is_postgres(pid: int) -> bool:
    """Tell whether the id is that of a server process here: one of a server in a container, whose
    socket is shared, may be any process.
    """
    if sys.platform != "linux":
        return True
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "postgres\n"
    except OSError:
        return False


async def prepare_connection(connection: asyncpg.Connection) -> None:
    # Codecs belong to a connection, so the pool runs this for each one it opens.
    await register_vector(connection, schema="extensions")
    await connection.set_type_codec(
        "json", schema="pg_catalog", format="binary", encoder=encode_json, decoder=from_json
    )
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        format="binary",
        encoder=lambda value: JSONB_VERSION + encode_json(value),
        decoder=lambda data: from_json(data[1:]),
    )
    # copy_records_to_table encodes in binary, and asyncpg has no binary codec for regconfig: map
    # names to oids.
    names = {
        row["oid"]: row["cfgname"]
        for row in await connection.fetch(
            "select oid, cfgname from pg_ts_config where cfgnamespace = 'pg_catalog'::regnamespace"
        )
    }
    packed = {name: struct.pack(">I", oid) for oid, name in names.items()}
    await connection.set_type_codec(
        "regconfig",
        schema="pg_catalog",
        format="binary",
        encoder=packed.__getitem__,
        decoder=lambda data: names[struct.unpack(">I", data)[0]],
    )


class UnresetConnection(asyncpg.Connection):
    """A connection that is released without a reset.

    The project keeps no session state beyond a transaction, so asyncpg's reset query would be a
    wasted round trip.
    """

    _built_in_types: ClassVar[dict[int | str, asyncpg.Record]] = {}

    def get_reset_query(self) -> str:
        return ""

    async def _introspect_types(self, oids: Collection[int], timeout: float | None) -> Any:
        # asyncpg asks on each connection for uuid[] and the like, by a query whose planning took a
        # sixth of the server's time in short-lived processes.
        known = self._built_in_types
        if known.keys() >= set(oids):
            return [known[oid] for oid in oids], SimpleNamespace(name="cached")
        types, statement = await super()._introspect_types(oids, timeout)  # type: ignore[misc]
        known.update((row["oid"], row) for row in types if row["oid"] < FIRST_UNFIXED_OID)
        return types, statement

    async def _introspect_type(self, name: str, schema: str) -> asyncpg.Record:
        known, key = self._built_in_types, f"{schema}.{name}"
        if key not in known:
            row: asyncpg.Record = await super()._introspect_type(name, schema)  # type: ignore[misc]
            if row["oid"] >= FIRST_UNFIXED_OID:
                return row
            known[key] = row
        return known[key]


async def close_pool(pool: Pool, *, timeout_s: float = 1.0) -> None:
    """Close the pool; terminate connections that are still in use after `timeout_s`."""
    try:
        # `Pool.close` waits for every connection in use, however long its query takes.
        async with asyncio.timeout(timeout_s):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def fetch_rows(pool: Pool, query: str, *parameters: Any) -> list[asyncpg.Record]:
    """Fetch the rows of a named query. Like the functions below, raises DatabaseUnavailable."""
    with translate_database_errors():
        return list(await pool.fetch(load_query(query), *parameters))


async def fetch_row(pool: Pool, query: str, *parameters: Any) -> asyncpg.Record | None:
    with translate_database_errors():
        return await pool.fetchrow(load_query(query), *parameters)


async def fetch_value(pool: Pool, query: str, *parameters: Any) -> Any:
    with translate_database_errors():
        return await pool.fetchval(load_query(query), *parameters)


async def execute(pool: Pool, query: str, *parameters: Any) -> None:
    with translate_database_errors():
        await pool.execute(load_query(query), *parameters)


async def execute_many(pool: Pool, query: str, rows: Iterable[Sequence[Any]]) -> None:
    with translate_database_errors():
        await pool.executemany(load_query(query), rows)
