"""Inspect a database without changing it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from sql.errors import translate_database_errors
from sql.migrate import read_migrations
from sql.pool import Pool
from sql.query_loader import load_query


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The state of a database.

    `version` is Postgres' major version; `vector` is the installed or available version of
    pgvector.
    """

    version: int
    vector: str | None
    pending: list[str]


async def inspect_database(dsn: str) -> DatabaseState:
    """Return the versions of Postgres and pgvector, and pending migrations. Raises
    DatabaseUnavailable.
    """
    async with _open_session(dsn) as connection:
        vector = await connection.fetchval(load_query("vector_version"))
        rows = await _fetch_migration_status(connection)
        return DatabaseState(
            connection.get_server_version().major,
            vector,
            [row["file"] for row in rows if row["applied_at"] is None],
        )


@dataclass(frozen=True, slots=True)
class DirectAccess:
    """Access of the role with which clients read tables directly.

    `unsecured` lists readable tables and views without row-level security.
    """

    has_role: bool
    is_granted: bool
    unsecured: list[str]


async def fetch_direct_access(pool: Pool) -> DirectAccess:
    """Return the access of the role for direct reads. Raises DatabaseUnavailable."""
    with translate_database_errors():
        [row] = await pool.fetch(load_query("direct_access"))
        return DirectAccess(**row)


async def fetch_migration_status(dsn: str) -> list[dict[str, Any]]:
    """Return each migration file and when it was applied, or None. Raises DatabaseUnavailable."""
    async with _open_session(dsn) as connection:
        return await _fetch_migration_status(connection)


async def list_pending_migrations(dsn: str) -> list[str]:
    """Return the files that `migrate` would apply. Raises DatabaseUnavailable."""
    return [row["file"] for row in await fetch_migration_status(dsn) if row["applied_at"] is None]


async def fetch_horizon_holder(dsn: str) -> dict[str, Any] | None:
    """Return the oldest open writing transaction; None if there is none.

    Readers of the log see no record that was appended after it began. Keys: `pid, application,
    state, seconds, query`. A prepared transaction has no pid, and its name as query. Raises
    DatabaseUnavailable.
    """
    async with _open_session(dsn) as connection:
        row = await connection.fetchrow(load_query("horizon_holder"))
        return dict(row) if row else None


async def fetch_blocking_transactions(dsn: str, seconds: float) -> list[dict[str, Any]]:
    """Return transactions that have blocked writes to our tables for `seconds`, oldest first.

    Keys: `pid, application, state, seconds, query, tables, unreadable`; `unreadable` is True if
    reads are blocked as well. A prepared transaction has no pid, and its name as query. Takes no
    table lock itself. Raises DatabaseUnavailable.
    """
    async with _open_session(dsn) as connection:
        return [
            dict(row)
            for row in await connection.fetch(load_query("blocking_transactions"), seconds)
        ]


@asynccontextmanager
async def _open_session(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    # No pool: its set-up needs the vector extension, which the database may lack. No statement
    # cache: the DSN may
    # point to a transaction pooler.
    with translate_database_errors():
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        try:
            yield connection
        finally:
            await connection.close()


async def _fetch_migration_status(connection: asyncpg.Connection) -> list[dict[str, Any]]:
    applied: dict[str, Any] = {}
    if await connection.fetchval("select to_regclass('anabranch.migration_checksums')") is not None:
        applied = {
            row["version"]: row["applied_at"]
            for row in await connection.fetch(
                "select version, applied_at from anabranch.migration_checksums"
            )
        }
    return [
        {"file": migration.file, "applied_at": applied.get(migration.version)}
        for migration in read_migrations()
    ]
