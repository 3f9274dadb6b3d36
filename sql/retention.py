"""Records that are taken out of the log."""

from __future__ import annotations

from sql.pool import Connection


async def lock_expired_batches(connection: Connection) -> None:
    """Before a transaction takes its first record out: one such transaction after the other, so that no two wait for records of each other."""
    await connection.execute("select from expired_batches for update")
