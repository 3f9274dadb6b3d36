"""The log's table on a server that did not write it: what was dumped there and restored here bears the numbers of that server's transactions."""

from __future__ import annotations

import structlog

from sql.errors import translate_log_errors
from sql.pool import Pool
from sql.query_loader import load_query

FIRST_XID = 3
"""The first transaction that any server counts."""

log = structlog.get_logger(__name__)


async def adopt_imported_log(pool: Pool) -> bool:
    """Where records bear transactions that this server has yet to come to, nobody would read them until then, nor what is appended now behind them. They become those of
    its first transaction, in the order of their positions, and readers lose no record by it. Returns whether that was so. Before anybody reads; raises LogUnavailable."""
    with translate_log_errors():
        if not await pool.fetchval(load_query("has_foreign_xacts")):
            return False
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("lock table events, log_readers in share row exclusive mode")
            if not await connection.fetchval(load_query("has_foreign_xacts")):
                return False
            await connection.execute(load_query("rebase_reader_cursors"), FIRST_XID)
            await connection.execute("update events set xact = $1::xid8", FIRST_XID)
            await connection.execute("delete from expired_ranges")
    log.warning("the log came from another server: its records were put in the order of their positions")
    return True
