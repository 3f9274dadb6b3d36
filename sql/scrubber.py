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

from sql.errors import translate_database_errors
from sql.pool import Connection, Pool

log = structlog.get_logger(__name__)
REWRITE_LIMIT_BYTES = 32 * 2**20
"""Largest table (with indexes) to rewrite during an erasure: queries wait about 1 s per 10 MiB."""
LOCK_TIMEOUT_S = 3
SNAPSHOT_WAIT_S = 10.0
OWN_SCHEMAS = "('anabranch', 'keystore')"
# Statistics come last: rewriting the other tables replaces their rows in pg_statistic.
TABLES_QUERY = f"""
select c.oid::regclass::text as name, pg_total_relation_size(c.oid) as bytes
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where (n.nspname in {OWN_SCHEMAS} and c.relkind = 'r' or c.oid = 'pg_catalog.pg_statistic'::regclass) and pg_relation_size(c.oid) > 0
order by c.oid = 'pg_catalog.pg_statistic'::regclass, 1
"""
CLEAR_STATISTICS_QUERY = f"""
select count(pg_clear_attribute_stats(schemaname, tablename, attname, inherited)) from pg_stats where schemaname in {OWN_SCHEMAS}
"""
INHERITED_STATISTICS_QUERY = f"select distinct format('%I.%I', schemaname, tablename) as name from pg_stats where inherited and schemaname in {OWN_SCHEMAS}"
OLDER_SNAPSHOT_QUERY = """
select exists (
  select from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and backend_xmin is not null and age(backend_xmin) >= age($1::text::xid)
)
"""
CAN_SWITCH_WAL_QUERY = """
select current_setting('wal_recycle') = 'off' and has_function_privilege('pg_switch_wal()', 'execute')
  and (pg_has_role('pg_checkpoint', 'usage') or (select rolsuper from pg_roles where rolname = current_user))
"""
WAL_RETAINED_QUERY = (
    "select exists (select from pg_replication_slots where restart_lsn < $1::text::pg_lsn)"
)


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
    with translate_database_errors():
        async with pool.acquire() as connection:
            inherited = [row["name"] for row in await connection.fetch(INHERITED_STATISTICS_QUERY)]
            if await connection.fetchval(
                "select to_regproc('pg_catalog.pg_clear_attribute_stats') is not null"
            ):
                await connection.execute(CLEAR_STATISTICS_QUERY)
            await _wait_for_snapshots(connection)
            await connection.execute(f"set lock_timeout = '{LOCK_TIMEOUT_S}s'")
            try:
                rows = await connection.fetch(TABLES_QUERY)
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
                await connection.execute("reset lock_timeout")
            return ScrubResult(tuple(remaining_tables), not await _remove_wal(connection))


async def vacuum_tables(pool: Pool, tables: Sequence[str]) -> None:
    """Vacuum and analyze tables, which removes deleted values from the statistics."""
    with translate_database_errors():
        async with pool.acquire() as connection:
            for table in tables:
                await connection.execute(f"vacuum (analyze) {table}")


async def _rewrite_table(connection: Connection, table: str, small: bool) -> bool:
    """Rewrite a table if it is small, else vacuum it. Returns whether no deleted rows remain."""
    try:
        await connection.execute(f"vacuum ({'full, ' if small else ''}analyze) {table}")
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
        log.warning("table_not_rewritten", table=table, reason="in use")
        return False
    except asyncpg.UndefinedTableError:  # its generation was dropped meanwhile
        return True
    return small


async def _wait_for_snapshots(connection: Connection) -> None:
    """Wait for older snapshots: VACUUM FULL keeps rows that an older transaction may still see."""
    marker = await connection.fetchval("select pg_current_xact_id()::xid::text")
    deadline = time.monotonic() + SNAPSHOT_WAIT_S
    while await connection.fetchval(OLDER_SNAPSHOT_QUERY, marker) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


async def _remove_wal(connection: Connection) -> bool:
    if not await connection.fetchval(CAN_SWITCH_WAL_QUERY):
        return False
    switch_lsn = await connection.fetchval("select pg_switch_wal()::text")
    await connection.execute("checkpoint")
    return not await connection.fetchval(WAL_RETAINED_QUERY, switch_lsn)
