"""Holding back the pointer of visibility in one generation, so that it can be compared with another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sql.pool import Connection

KIND = 0x666C6970
"""Of advisory locks: their second number is the generation's."""


async def share_flips(connection: Connection, generation: str) -> None:
    """Before a transaction that may flip: waits while flips are held. Call it first, while the transaction has neither locks nor an id of its own,
    so that nobody waits for it meanwhile, the readers of the log least of all."""
    await connection.execute("select pg_advisory_xact_lock_shared($1, hashtext($2))", KIND, generation)


@asynccontextmanager
async def flips_held(connection: Connection, generation: str) -> AsyncIterator[None]:
    """Begins when the flips under way have committed. Outside any transaction: one would hold back the readers of the log, and with them whoever is to catch up."""
    try:
        await connection.execute("select pg_advisory_lock($1, hashtext($2))", KIND, generation)
        yield
    finally:
        # Also where the wait was cancelled: the lock may have come at that moment.
        await connection.execute("select pg_advisory_unlock($1, hashtext($2))", KIND, generation)
