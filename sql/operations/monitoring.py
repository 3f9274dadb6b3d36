"""Inspect a database for monitoring and diagnosis, without changing its data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from schemas.errors import AnabranchError
from schemas.ports.consumers import Pause
from schemas.ports.stage_ports import ReportProgress
from sql.database import PgStore, Pool, fetch_row, fetch_rows, load_query, read_values
from sql.operations.migrate import open_session, read_migrations

STATUS_TTL_S = 60.0
"""A status expires this long after its renewal, since a killed process cannot clear it."""


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
    async with open_session(dsn) as connection:
        vector = await connection.fetchval(load_query("vector_version"))
        rows = await _fetch_migration_status(connection)
        return DatabaseState(
            connection.get_server_version().major,
            vector,
            [row["file"] for row in rows if row["applied_at"] is None],
        )


async def fetch_table_sizes(dsn: str) -> list[dict[str, Any]]:
    """Return the bytes and the estimated rows of each table. Raises DatabaseUnavailable."""
    return await _fetch_in_session(dsn, "table_sizes")


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
    [row] = await fetch_rows(pool, "direct_access")
    return DirectAccess(**row)


async def fetch_migration_status(dsn: str) -> list[dict[str, Any]]:
    """Return each migration file and when it was applied, or None. Raises DatabaseUnavailable."""
    async with open_session(dsn) as connection:
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
    return next(iter(await _fetch_in_session(dsn, "horizon_holder")), None)


async def fetch_blocking_transactions(dsn: str, seconds: float) -> list[dict[str, Any]]:
    """Return transactions that have blocked writes to our tables for `seconds`, oldest first.

    Keys: `pid, application, state, seconds, query, tables, unreadable`; `unreadable` is True if
    reads are blocked as well. A prepared transaction has no pid, and its name as query. Takes no
    table lock itself. Raises DatabaseUnavailable.
    """
    return await _fetch_in_session(dsn, "blocking_transactions", seconds)


async def _fetch_in_session(dsn: str, query: str, *parameters: Any) -> list[dict[str, Any]]:
    async with open_session(dsn) as connection:
        return [dict(row) for row in await connection.fetch(load_query(query), *parameters)]


async def _fetch_migration_status(connection: asyncpg.Connection) -> list[dict[str, Any]]:
    applied: dict[str, Any] = {}
    # An empty database has no such table yet.
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


async def fetch_oldest_running_work(
    pool: Pool, stage: str, generation: str | None
) -> dict[str, Any] | None:
    """Return the stage's oldest unfinished work, of one generation or of all; None if there is
    none.

    Keys: `document_id, part, attempts, topic, partition, offset, seconds`. Raises
    DatabaseUnavailable.
    """
    row = await fetch_row(pool, "oldest_running_work", stage, generation)
    return dict(row) if row else None


async def fetch_stage_activity(
    pool: Pool, window_s: float, max_work_s: float
) -> list[dict[str, Any]]:
    """Return what each stage did in the last `window_s` seconds, by generation.

    Keys: `stage, generation, started, finished, in_flight, retries, p50_ms, p95_ms`; the generation
    of shared stages is empty. Stages that process no documents have no line. Raises
    DatabaseUnavailable.
    """
    return [dict(row) for row in await fetch_rows(pool, "stage_activity", window_s, max_work_s)]


async def list_tenants(pool: Pool) -> list[str]:
    """Return the tenants that have documents or API keys. Raises DatabaseUnavailable."""
    return [row["tenant"] for row in await fetch_rows(pool, "tenants")]


async def fetch_lock_holder(pool: Pool, seconds: float) -> dict[str, Any] | None:
    """Return the transaction for whose lock our connections have waited at least `seconds`.

    Keys: `pid, application, state, seconds, query`. Raises DatabaseUnavailable.
    """
    row = await fetch_row(pool, "lock_holder", seconds)
    return dict(row) if row else None


class PgReaderStatus(PgStore):
    async def set_paused(
        self, reader: str, topic: str, partition: int, reason: AnabranchError
    ) -> None:
        problem = read_values(reason, "code", "detail", "remedy")
        await self._execute(
            "upsert_reader_status", reader, topic, partition, *problem, STATUS_TTL_S
        )

    async def clear_paused(self, reader: str, topic: str, partition: int) -> None:
        await self._execute("delete_reader_status", reader, topic, partition)

    async def list_current(self) -> list[Pause]:
        """Return statuses that have not expired."""
        return [Pause(**dict(row)) for row in await self._fetch("reader_status", STATUS_TTL_S)]


PROGRESS_INTERVAL_S = 1.0


class PgProgress(PgStore):
    def __init__(
        self, pool: Pool, generation: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(pool)
        self._generation, self._clock = generation, clock

    def begin(self, stage: str, document_id: UUID, order: Sequence[int]) -> ReportProgress:
        due_at = self._clock() + PROGRESS_INTERVAL_S

        async def report(done: int, total: int) -> None:
            nonlocal due_at
            # Most reactions end before: they cost no statement.
            if self._clock() >= due_at:
                due_at = self._clock() + PROGRESS_INTERVAL_S
                await self._execute(
                    "store_progress", self._generation, stage, document_id, order, done, total
                )

        return report


async def fetch_received_times(pool: Pool, events: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """Return event id → received time, for events that became a revision."""
    return {
        row["accepted_id"]: row["received_at"]
        for row in await fetch_rows(pool, "received_times", events)
    }
