"""Drop a generation and remove its tables, while other generations are read and written.

Three steps: mark it as dropped, truncate its partitions, then detach and drop them. The last step
waits for every transaction that has read one of the parent tables; the data are gone before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from schemas.errors import DatabaseUnavailable, PermanentError
from sql.advisory_locks import try_lock
from sql.catalog.runs import archive_run_texts
from sql.errors import translate_database_errors
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.index.generations import unknown_generation_error
from sql.index.partitions import drop_partitions
from sql.pool import Connection, Pool, execute, fetch_row, fetch_rows, fetch_value
from sql.query_loader import load_query

# Queries queue behind a waiting TRUNCATE, so it gives up soon and leaves the table to the drop.
LOCK_TIMEOUT = "500ms"
QUERY_DRAIN_S = 10.0
"""How long to wait for queries that started before the drop."""
REMOVAL_TIMEOUT_S = 3.0
POLL_S = 0.05

PublishDrop = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome of a removal.

    `removed` is True once no table of the generation exists. Otherwise `blocked_by` may name the
    transaction that keeps one open; its rows may be deleted already.
    """

    removed: bool
    blocked_by: dict[str, Any] | None = None


async def begin_generation_drop(pool: Pool, name: str, publish: PublishDrop) -> None:
    """Publish the drop of a generation, then mark it as dropped, so that queries and workers stop
    using it.

    Raises NotFound, PermanentError with code GENERATION_IS_LIVE, LogUnavailable or
    DatabaseUnavailable; nothing has changed then.
    """
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection, connection.transaction():
            # Blocks a concurrent switch to this generation.
            await connection.execute(load_query("lock_live_generation"))
            row = await connection.fetchrow(load_query("begin_drop"), name)
            if row is None or row["state"] == "dropped":
                raise unknown_generation_error(name)
            if row["live"]:
                raise PermanentError(
                    f"Generation {name!r} is live.",
                    code="GENERATION_IS_LIVE",
                    remedy="Promote another generation first, or roll back.",
                )
            # Published first: the log decides, and after a crash stage `control` marks the drop.
            await publish(name)
            await connection.execute(load_query("mark_generation_dropped"), name)


async def remove_generation_tables(
    pool: Pool, name: str, *, timeout_s: float = REMOVAL_TIMEOUT_S
) -> Removal:
    """Remove the tables of a dropped generation.

    Rows are deleted within seconds, even while a transaction that has read other generations stays
    open; tables are detached and dropped once it ends. A later call finishes what is left after
    `timeout_s`. Raises DatabaseUnavailable.
    """
    with translate_database_errors():
        async with (
            pool.acquire(timeout=60) as connection,
            try_lock(connection, f"drop {name}") as acquired,
        ):
            if acquired and await _has_tables(pool, name):
                await _remove_tables(pool, connection, name, timeout_s)
    if not await _has_tables(pool, name):
        return Removal(removed=True)
    blocker = await fetch_row(
        pool, "partition_blocker", _format_partition_names(name), list(PARTITIONED_TABLES)
    )
    return Removal(removed=False, blocked_by=dict(blocker) if blocker else None)


async def _remove_tables(pool: Pool, connection: Connection, name: str, timeout_s: float) -> None:
    # Queries that begin from now on see the generation as dropped.
    removed_at = await connection.fetchval("select clock_timestamp()")
    # TRUNCATE is not MVCC-safe: an older snapshot sees the table empty, too.
    with suppress(TimeoutError):
        async with asyncio.timeout(QUERY_DRAIN_S):
            while await connection.fetchval(load_query("running_transactions"), removed_at):
                await asyncio.sleep(POLL_S)
    # Before the rows go: recorded answers refer to their texts by hash.
    await archive_run_texts(connection, name)
    for table in PARTITIONED_TABLES:
        # A partition that is gone or in use is only dropped, later.
        with suppress(asyncpg.LockNotAvailableError, asyncpg.UndefinedTableError):
            async with connection.transaction():
                await connection.execute(
                    f"set local lock_timeout = '{LOCK_TIMEOUT}'; truncate anabranch.{table}_{name}"
                )
    # ObjectNotInPrerequisiteStateError: another partition of the same table is being detached.
    with suppress(TimeoutError, DatabaseUnavailable, asyncpg.ObjectNotInPrerequisiteStateError):
        async with asyncio.timeout(timeout_s):
            await drop_partitions(pool, name)


async def list_unremoved_generations(pool: Pool) -> list[str]:
    """Return dropped generations that still have tables. Raises DatabaseUnavailable."""
    names = await fetch_rows(pool, "dropped_names")
    return [row["name"] for row in names if await _has_tables(pool, row["name"])]


async def _has_tables(pool: Pool, name: str) -> bool:
    return bool(await fetch_value(pool, "has_partitions", _format_partition_names(name)))


def _format_partition_names(name: str) -> list[str]:
    return [f"{table}_{name}" for table in PARTITIONED_TABLES]


async def record_dropped_states(pool: Pool, generation: str) -> None:
    """Record the blobs of a generation. Call it before its rows, the only reference to them, are
    deleted.
    """
    await execute(pool, "record_dropped_states", generation)


async def fetch_dropped_states(pool: Pool, limit: int) -> dict[str, bool]:
    """Return blob key → whether another generation still references the blob."""
    return {
        row["blob_key"]: row["used"] for row in await fetch_rows(pool, "dropped_state_blobs", limit)
    }


async def delete_dropped_states(pool: Pool, keys: Sequence[str]) -> None:
    await execute(pool, "delete_dropped_states", list(keys))
