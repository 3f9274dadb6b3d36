"""Removing what deleted rows leave behind in Postgres: free space in files of tables and indexes, statistics, write-ahead log.

`vacuum` frees the room of a deleted row and wipes nothing, a GIN index keeps each word that it ever had, `pg_statistic` keeps frequent values, and each segment of
the write-ahead log keeps what was written until it is removed. `vacuum full` writes a table and its indexes anew; a checkpoint after a switch removes old segments
where `wal_recycle` is off, as it is on the embedded server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import structlog

from sql.errors import database_errors
from sql.pool import Connection, Pool

log = structlog.get_logger(__name__)
LIMIT_BYTES = 32 * 2**20
"""A table up to this size, indexes included, is written anew while an erasure waits: questions wait for about 1 s for each 10 MiB."""
LOCK_S = 3
SNAPSHOTS_S = 10.0
OWN = "('anabranch', 'keystore')"
TABLES = f"""
select c.oid::regclass::text as name, pg_total_relation_size(c.oid) as bytes
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where (n.nspname in {OWN} and c.relkind = 'r' or c.oid = 'pg_catalog.pg_statistic'::regclass) and pg_relation_size(c.oid) > 0
order by c.oid = 'pg_catalog.pg_statistic'::regclass, 1
"""
"""Statistics last: writing the others anew replaces theirs."""
CLEAR_STATISTICS = f"""
select count(pg_clear_attribute_stats(schemaname, tablename, attname, inherited)) from pg_stats where schemaname in {OWN}
"""
INHERITED = f"select distinct format('%I.%I', schemaname, tablename) as name from pg_stats where inherited and schemaname in {OWN}"
OLDER_SNAPSHOT = """
select exists (
  select from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and backend_xmin is not null and age(backend_xmin) >= age($1::text::xid)
)
"""
MAY_SWITCH = """
select current_setting('wal_recycle') = 'off' and has_function_privilege('pg_switch_wal()', 'execute')
  and (pg_has_role('pg_checkpoint', 'usage') or (select rolsuper from pg_roles where rolname = current_user))
"""
HELD_BACK = "select exists (select from pg_replication_slots where restart_lsn < $1::text::pg_lsn)"


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """What is left. `tables` were too large or in use, and keep deleted rows in free space; `log` says that the write-ahead log keeps them."""

    tables: tuple[str, ...]
    log: bool


async def scrub(pool: Pool, *, limit_bytes: int | None = LIMIT_BYTES) -> Scrubbed:
    """Write our tables up to this size anew (all for None), their statistics too, and remove the write-ahead log from before. Larger ones are vacuumed only.

    Each table is locked while it is written. Raises DatabaseUnavailable.
    """
    with database_errors():
        async with pool.acquire() as connection:
            inherited = [row["name"] for row in await connection.fetch(INHERITED)]
            if await connection.fetchval("select to_regproc('pg_catalog.pg_clear_attribute_stats') is not null"):
                await connection.execute(CLEAR_STATISTICS)
            await _wait_for_snapshots(connection)
            await connection.execute(f"set lock_timeout = '{LOCK_S}s'")
            try:
                rows = await connection.fetch(TABLES)
                left = [row["name"] for row in rows if not await _write_anew(connection, row["name"], limit_bytes is None or row["bytes"] <= limit_bytes)]
                for table in inherited:
                    await connection.execute(f"analyze {table}")
            finally:
                await connection.execute("reset lock_timeout")
            return Scrubbed(tuple(left), not await _remove_log(connection))


async def vacuum(pool: Pool, tables: Sequence[str]) -> None:
    """Let Postgres use the room of what was deleted, and take its values out of the statistics."""
    with database_errors():
        async with pool.acquire() as connection:
            for table in tables:
                await connection.execute(f"vacuum (analyze) {table}")


async def _write_anew(connection: Connection, table: str, small: bool) -> bool:
    """False where it was only vacuumed."""
    try:
        await connection.execute(f"vacuum ({'full, ' if small else ''}analyze) {table}")
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
        log.warning("table_not_rewritten", table=table, reason="in use")
        return False
    except asyncpg.UndefinedTableError:  # its generation was dropped meanwhile
        return True
    return small


async def _wait_for_snapshots(connection: Connection) -> None:
    """A table that is written anew keeps rows which an older transaction may still see."""
    marker = await connection.fetchval("select pg_current_xact_id()::xid::text")
    deadline = time.monotonic() + SNAPSHOTS_S
    while await connection.fetchval(OLDER_SNAPSHOT, marker) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


async def _remove_log(connection: Connection) -> bool:
    if not await connection.fetchval(MAY_SWITCH):
        return False
    switched = await connection.fetchval("select pg_switch_wal()::text")
    await connection.execute("checkpoint")
    return not await connection.fetchval(HELD_BACK, switched)
