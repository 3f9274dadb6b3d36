"""Remove traces of deleted rows from Postgres files: tables, indexes, statistics, write-ahead log.

`vacuum` frees the space of deleted rows without overwriting it, a GIN index keeps every word it
ever had, `pg_statistic` keeps frequent values, and WAL segments keep what was written until they
are removed. `vacuum full` rewrites a table and its indexes. A checkpoint after a WAL switch removes
old segments if `wal_recycle` is off, as on the embedded server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import structlog

from sql.database import Connection, Pool, acquire, load_query

log = structlog.get_logger(__name__)
REWRITE_LIMIT_BYTES = 32 * 2**20
"""Largest table (with indexes) to rewrite during an erasure: queries wait about 1 s per 10 MiB."""
LOCK_TIMEOUT_S = 3
SNAPSHOT_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """The traces that remain.

    `remaining_tables` were too large or in use and keep deleted rows in free space.
    """

    remaining_tables: tuple[str, ...]
    is_wal_remaining: bool


async def scrub_tables(pool: Pool, *, limit_bytes: int | None = REWRITE_LIMIT_BYTES) -> ScrubResult:
    """Rewrite our tables up to `limit_bytes` (None: all) and remove the old write-ahead log.

    Larger tables are only vacuumed; statistics are rewritten as well. Each table is locked while it
    is rewritten. Raises DatabaseUnavailable.
    """
    async with acquire(pool) as connection:
        inherited = [
            row["name"] for row in await connection.fetch(load_query("inherited_statistics"))
        ]
        if await connection.fetchval(load_query("can_clear_statistics")):
            await connection.execute(load_query("clear_statistics"))
        # Best effort: VACUUM FULL copies deleted rows that an older snapshot may still see.
        await _wait_for_snapshots(connection)
        await connection.execute(f"set lock_timeout = '{LOCK_TIMEOUT_S}s'")
        try:
            rows = await connection.fetch(load_query("scrubbed_tables"))
            remaining_tables = [
                row["name"]
                for row in rows
                if not await _rewrite_table(
                    connection, row["name"], limit_bytes is None or row["bytes"] <= limit_bytes
                )
            ]
            for table in inherited:
                await connection.execute(f"analyze {table}")
        finally:
            # The pool does not reset its connections.
            await connection.execute("reset lock_timeout")
        return ScrubResult(tuple(remaining_tables), not await _remove_wal(connection))


async def vacuum_tables(pool: Pool, tables: Sequence[str]) -> None:
    """Vacuum and analyze tables, which removes deleted values from the statistics."""
    async with acquire(pool) as connection:
        for table in tables:
            await connection.execute(f"vacuum (analyze) {table}")


async def _rewrite_table(connection: Connection, table: str, small: bool) -> bool:
    """Rewrite a table if it is small, else vacuum it. Returns whether no deleted rows remain."""
    try:
        await connection.execute(f"vacuum ({'full, ' if small else ''}analyze) {table}")
    # Reported as remaining; a later scrub rewrites it.
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
        log.warning("table_not_rewritten", table=table, reason="in use")
        return False
    except asyncpg.UndefinedTableError:  # its generation was dropped meanwhile
        return True
    return small


async def _wait_for_snapshots(connection: Connection) -> None:
    """Wait for older snapshots: VACUUM FULL keeps rows that an older transaction may still see."""
    marker = await connection.fetchval(load_query("current_xid"))
    deadline = time.monotonic() + SNAPSHOT_WAIT_S
    while (
        await connection.fetchval(load_query("has_older_snapshot"), marker)
        and time.monotonic() < deadline
    ):
        await asyncio.sleep(0.05)


async def _remove_wal(connection: Connection) -> bool:
    if not await connection.fetchval(load_query("can_switch_wal")):
        return False
    switch_lsn = await connection.fetchval("select pg_switch_wal()::text")
    # The switch closes the current segment; the checkpoint removes it.
    await connection.execute("checkpoint")
    return not await connection.fetchval(load_query("is_wal_retained"), switch_lsn)
