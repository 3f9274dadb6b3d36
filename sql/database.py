"""Connections, named statements, values, and advisory locks, which block no table.

Connections have the codecs (vector, halfvec, JSON, regconfig) and session settings (search path,
custom plans, HNSW search) that the queries need.

The SQL statements are in `queries/`, one file for each aggregate. A statement is a line
`-- name: <name>`, a comment line with its purpose, and its text. aiosql does not fit: it has no
includes, and its generated methods have no types. Only statements that cannot be written down in
advance stay in Python: session commands (`set`, `begin`, `lock table`, advisory locks), DDL and
inserts that are built from identifiers, and the bookkeeping of migrations, which runs before the
schema exists.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import asyncpg
from pgvector.asyncpg import register_vector
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from schemas.channels import DEFAULT_EF_SEARCH
from sql.errors import translate_database_errors

FOLDER = Path(__file__).with_name("queries")
NAME_PATTERN = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
INCLUDE_PATTERN = re.compile(r"\{(\w+)\}")


@cache
def load_query(name: str, **substitutions: int | str) -> str:
    """Return the text of a query.

    `{name}` is replaced by a substitution, or else by the query of that name. Vector dimensions and
    table names are substituted because they cannot be parameters.
    """
    queries = read_queries(FOLDER)
    if name not in queries:
        raise ValueError(f"Unknown query '{name}'. Add it to a file in {FOLDER}.")

    def expand(match: re.Match[str]) -> str:
        return (
            str(substitutions[match[1]])
            if match[1] in substitutions
            # On a new line: an included query begins with a comment line.
            else f"\n{load_query(match[1], **substitutions)}"
        )

    return INCLUDE_PATTERN.sub(expand, queries[name])


@cache
def read_queries(folder: Path) -> dict[str, str]:
    """Read the queries of a folder by name."""
    queries: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        _, *parts = NAME_PATTERN.split(path.read_text())
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in queries:
                raise ValueError(f"Two queries are named '{name}'. Rename the one in {path.name}.")
            queries[name] = text.rstrip()
    return queries


NUL_REPLACEMENT = "\ufffd"
"""Replaces NUL, which Postgres text cannot contain. It is one code point too; offsets stay."""


def replace_nul(value: str | None) -> str | None:
    return value.replace("\0", NUL_REPLACEMENT) if value and "\0" in value else value


def read_values(source: object, *names: str) -> list[Any]:
    """Return the values of these fields as Postgres stores them: models as JSON objects."""
    return [_encode_value(getattr(source, name)) for name in names]


def read_columns(sources: Sequence[object], *names: str) -> list[list[Any]]:
    """Return these fields of many objects as columns, for a query that unnests them."""
    return [[getattr(source, name) for source in sources] for name in names]


def _encode_value(value: Any) -> Any:
    match value:
        case str():
            return replace_nul(value)
        case BaseModel():
            return value.model_dump(mode="json")
        case list() | tuple():
            return [_encode_value(item) for item in value]
    return value


def encode_json_text(value: Any) -> str:
    return encode_json(value).decode()


def encode_json(value: Any) -> bytes:
    """Encode a value as compact JSON in UTF-8.

    Raises ValueError for an unpaired surrogate and for nesting deeper than 254.
    """
    dumped = to_json(value)
    # Replaced only where the JSON has the escape, since the walk is slow.
    return to_json(_replace_nul_recursively(value)) if b"\\u0000" in dumped else dumped


def format_array(numbers: Iterable[int] | None) -> str | None:
    # A literal: array parameters must be rectangular, and orders differ in length.
    return None if numbers is None else "{" + ",".join(map(str, numbers)) + "}"


def _replace_nul_recursively(value: Any) -> Any:
    match value:
        case str():
            return replace_nul(value)
        case dict():
            return {
                replace_nul(name): _replace_nul_recursively(item) for name, item in value.items()
            }
        case list() | tuple():
            return [_replace_nul_recursively(item) for item in value]
    return value


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
"""Stages repeat a few statements by key. Planning each one again took a third of the CPU."""
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


@asynccontextmanager
async def use_pool(
    dsn: str, *, size: int, name: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Pool]:
    """Open a pool as `open_pool` does, and close it with the context."""
    pool = await open_pool(dsn, size=size, name=name, settings=settings)
    try:
        yield pool
    finally:
        await close_pool(pool)


@asynccontextmanager
async def acquire(pool: Pool, *, timeout_s: float | None = None) -> AsyncIterator[Connection]:
    """Hold a connection while the context is open. Raises DatabaseUnavailable, also for what is
    done with it.
    """
    with translate_database_errors():
        async with pool.acquire(timeout=timeout_s) as connection:
            yield connection


async def fetch_rows(
    pool: Pool, query: str, *parameters: Any, **substitutions: int | str
) -> list[asyncpg.Record]:
    """Fetch the rows of a named query. Like the functions below, raises DatabaseUnavailable."""
    with translate_database_errors():
        return list(await pool.fetch(load_query(query, **substitutions), *parameters))


async def fetch_row(pool: Pool, query: str, *parameters: Any) -> asyncpg.Record | None:
    with translate_database_errors():
        return await pool.fetchrow(load_query(query), *parameters)


async def fetch_value(pool: Pool, query: str, *parameters: Any) -> Any:
    with translate_database_errors():
        return await pool.fetchval(load_query(query), *parameters)


async def execute(pool: Pool, query: str, *parameters: Any) -> None:
    with translate_database_errors():
        await pool.execute(load_query(query), *parameters)


class PgStore:
    """Runs named queries over a pool. Every method of a store may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # Each lock holds a connection of the pool while its event is appended over another one.
        self._lock_slots = asyncio.Semaphore(1)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Lock a name for this request, in all processes.

        No other request can then change what this one has checked before its event is written.
        """
        async with (
            self._lock_slots,
            acquire(self._pool) as connection,
            wait_for_lock(connection, name),
        ):
            yield

    async def _fetch(
        self, query: str, *parameters: Any, **substitutions: int | str
    ) -> list[asyncpg.Record]:
        return await fetch_rows(self._pool, query, *parameters, **substitutions)

    async def _fetch_bodies(
        self, query: str, *parameters: Any, **substitutions: int | str
    ) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        return [dict(row) for row in await self._fetch(query, *parameters, **substitutions)]

    async def _fetch_column(
        self, query: str, *parameters: Any, **substitutions: int | str
    ) -> list[Any]:
        """Return the first column."""
        return [row[0] for row in await self._fetch(query, *parameters, **substitutions)]

    async def _fetch_pairs(self, query: str, *parameters: Any) -> dict[Any, Any]:
        """Return the first column with the second one."""
        return {row[0]: row[1] for row in await self._fetch(query, *parameters)}

    async def _fetch_row(self, query: str, *parameters: Any) -> asyncpg.Record | None:
        return await fetch_row(self._pool, query, *parameters)

    async def _fetch_value(self, query: str, *parameters: Any) -> Any:
        return await fetch_value(self._pool, query, *parameters)

    async def _execute(self, query: str, *parameters: Any) -> None:
        await execute(self._pool, query, *parameters)

    async def _execute_many(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        with translate_database_errors():
            await self._pool.executemany(load_query(query), rows)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        async with acquire(self._pool) as connection, connection.transaction():
            yield connection


KEEPALIVE_SETTINGS = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""The server otherwise keeps the session of a host that vanished for two hours."""
# Session locks must be released: the pool returns connections without a reset.
UNLOCK = "select pg_advisory_unlock(hashtext($1))"


@asynccontextmanager
async def try_lock(connection: Connection, name: str) -> AsyncIterator[bool]:
    """Try to lock a name while the context is open; yields whether this session has the lock."""
    acquired = bool(await connection.fetchval("select pg_try_advisory_lock(hashtext($1))", name))
    try:
        yield acquired
    finally:
        if acquired:
            await connection.execute(UNLOCK, name)


@asynccontextmanager
async def wait_for_lock(connection: Connection, name: str) -> AsyncIterator[None]:
    """Lock a name while the context is open, however long another session has it."""
    try:
        # Without lock_timeout, which the pool may have set.
        await connection.execute(
            "select set_config('lock_timeout', '0', true), pg_advisory_lock(hashtext($1))", name
        )
        yield
    finally:
        # Even after a cancelled wait: the lock may have been granted at that moment.
        await connection.execute(UNLOCK, name)


@asynccontextmanager
async def hold_session_lock(dsn: str, name: str) -> AsyncIterator[asyncio.Event]:
    """Lock a name with a connection of its own; yield an event that is set when it is lost.

    The server releases the lock when this process ends, however it ends. Raises
    DatabaseUnavailable.
    """
    connection = await connect(dsn, name=name, settings=KEEPALIVE_SETTINGS)
    lost = asyncio.Event()
    try:
        connection.add_termination_listener(lambda _: lost.set())
        with translate_database_errors():
            await connection.execute("select pg_advisory_lock(hashtext($1))", name)
        yield lost
    finally:
        # `close` would wait for an answer of a server that may be gone.
        connection.terminate()
