"""Serialize the removal of records from the log."""

from __future__ import annotations

from sql.pool import Connection
from sql.query_loader import load_query


async def lock_expired_batches(connection: Connection) -> None:
    """Lock the removal of records until the transaction ends. Call it before the first removal.

    Two concurrent removals would otherwise deadlock on each other's records.
    """
    await connection.execute(load_query("lock_expired_batches"))
