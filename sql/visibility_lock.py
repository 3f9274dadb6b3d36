"""Block the activation of revisions in a generation, while it is compared with another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.errors import TransientError
from sql.pool import Connection

LOCK_CLASS = 0x666C6970
"""Class of advisory locks; the second number is a hash of the generation's name."""


async def share_visibility_lock(connection: Connection, generation: str) -> None:
    """Share the lock with other activating transactions; waits while `hold_visibility_lock` is
    active.

    Call it first in the transaction. A transaction that waits with an id or other locks would block
    others, above all readers of the log.
    """
    await connection.execute(
        "select pg_advisory_xact_lock_shared($1, hashtext($2))", LOCK_CLASS, generation
    )


@asynccontextmanager
async def hold_visibility_lock(
    connection: Connection, generation: str, *, wait_s: float
) -> AsyncIterator[None]:
    """Hold the lock exclusively, once activating transactions have committed.

    Raises TransientError with code VISIBILITY_LOCKED if one takes longer than `wait_s`; others wait
    behind it meanwhile. Call it outside any transaction: an open one blocks readers of the log, and
    with them the generation that has to catch up.
    """
    try:
        try:
            async with asyncio.timeout(wait_s):
                await connection.execute(
                    "select pg_advisory_lock($1, hashtext($2))", LOCK_CLASS, generation
                )
        except TimeoutError:
            raise TransientError(
                f"Timed out after {wait_s:g} s waiting for a transaction that activates a revision in {generation}.",
                code="VISIBILITY_LOCKED",
                remedy="Run `anabranch topics lag` to see the oldest transaction, then try again.",
            ) from None
        yield
    finally:
        # Even after a cancelled wait: the lock may have been granted at that moment.
        await connection.execute(
            "select pg_advisory_unlock($1, hashtext($2))", LOCK_CLASS, generation
        )
