"""What a database is and has, without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

from sql.errors import database_errors
from sql.migrate import read_migrations


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """`version` is Postgres' major one; `vector` is pgvector's, installed or at hand."""

    version: int
    vector: str | None
    pending: list[str]


async def inspect(dsn: str) -> DatabaseState:
    """Raises DatabaseUnavailable."""
    with database_errors():
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        try:
            vector = await connection.fetchval("select coalesce(installed_version, default_version) from pg_available_extensions where name = 'vector'")
            rows = await _status(connection)
            return DatabaseState(connection.get_server_version().major, vector, [row["file"] for row in rows if row["applied_at"] is None])
        finally:
            await connection.close()


async def migration_status(dsn: str) -> list[dict[str, Any]]:
    """Every migration file with when it was applied, or None. Raises DatabaseUnavailable."""
    with database_errors():
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        try:
            return await _status(connection)
        finally:
            await connection.close()


async def pending(dsn: str) -> list[str]:
    """Files that `migrate` would apply. Raises DatabaseUnavailable."""
    return [row["file"] for row in await migration_status(dsn) if row["applied_at"] is None]


async def _status(connection: asyncpg.Connection) -> list[dict[str, Any]]:
    applied: dict[str, Any] = {}
    if await connection.fetchval("select to_regclass('anabranch.migration_checksums')") is not None:
        applied = {row["version"]: row["applied_at"] for row in await connection.fetch("select version, applied_at from anabranch.migration_checksums")}
    return [{"file": migration.file, "applied_at": applied.get(migration.version)} for migration in read_migrations()]
