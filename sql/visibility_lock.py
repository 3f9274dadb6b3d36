"""Holding back the pointer of visibility in one generation, so that it can be compared with another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.errors import TransientError
from sql.pool import Connection

LOCK_CLASS = 0x666C6970
"""Of advisory locks: their second number is the generation's."""


async def share_visibility_lock(connection: Connection, generation: str) -> None:
    """Before a transaction that may flip: waits while flips are held. Call it first, while the transaction has neither locks nor an id of its own,
    so that nobody waits for it meanwhile, the readers of the log least of all."""
    await connection.execute("select pg_advisory_xact_lock_shared($1, hashtext($2))", LOCK_CLASS, generation)


@asynccontextmanager
async def hold_visibility_lock(connection: Connection, generation: str, *, wait_s: float) -> AsyncIterator[None]:
    """Begins when the flips under way have committed; raises TransientError with code VISIBILITY_LOCKED where one takes longer than `wait_s`, during which others
    wait behind it. Outside any transaction: one would hold back the readers of the log, and with them whoever is to catch up."""
    try:
        try:
            async with asyncio.timeout(wait_s):
                await connection.execute("select pg_advisory_lock($1, hashtext($2))", LOCK_CLASS, generation)
        except TimeoutError:
            remedy = "`anabranch topics lag` names the oldest transaction; then try again."
            raise TransientError(f"a document has been about to show in {generation} for {wait_s:g} s", code="VISIBILITY_LOCKED", remedy=remedy) from None
        yield
    finally:
        # Also where the wait was cancelled: the lock may have come at that moment.
        await connection.execute("select pg_advisory_unlock($1, hashtext($2))", LOCK_CLASS, generation)
