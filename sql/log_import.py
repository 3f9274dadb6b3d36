"""Adopt an events table that was dumped on another server and restored here.

Its records carry the other server's transaction ids.
"""

from __future__ import annotations

import structlog

from sql.errors import translate_log_errors
from sql.pool import Pool
from sql.query_loader import load_query

FIRST_XID = 3
"""FirstNormalTransactionId: the first transaction id of any server."""

log = structlog.get_logger(__name__)


async def adopt_imported_log(pool: Pool) -> bool:
    """Restamp records whose transaction ids this server has not reached; return whether there were
    any.

    Such records, and all that is appended after them, would stay above the snapshot horizon and
    unreadable. They get the first transaction id, which orders them by position, and readers lose
    no record. Call it before any reader starts. Raises LogUnavailable.
    """
    with translate_log_errors():
        if not await pool.fetchval(load_query("has_foreign_xacts")):
            return False
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("lock table events, log_readers in share row exclusive mode")
            if not await connection.fetchval(load_query("has_foreign_xacts")):
                return False
            await connection.execute(load_query("rebase_reader_cursors"), FIRST_XID)
            await connection.execute(load_query("restamp_events"), FIRST_XID)
            await connection.execute(load_query("delete_expired_ranges"))
    log.warning("imported_log_adopted", order="position")
    return True
