"""Lock names with advisory locks of Postgres, which block no table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.errors import TransientError
from sql.errors import translate_database_errors
from sql.pool import Connection, connect

KEEPALIVE_SETTINGS = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""The server otherwise keeps the session of a host that vanished for two hours."""
# Session locks must be released: the pool returns connections without a reset.
UNLOCK = "select pg_advisory_unlock(hashtext($1))"


@asynccontextmanager
async def try_lock(connection: Connection, name: str) -> AsyncIterator[bool]:
    """Try to lock a name while the context is open; yields whether this session has the lock."""
    acquired = bool(await connection.fetchval("select pg_try_advisory_lock(hashtext($1))", name))
    try:
        yield acquired
    finally:
        if acquired:
            await connection.execute(UNLOCK, name)


@asynccontextmanager
async def wait_for_lock(connection: Connection, name: str) -> AsyncIterator[None]:
    """Lock a name while the context is open, however long another session has it."""
    try:
        # Without lock_timeout, which the pool may have set.
        await connection.execute(
            "select set_config('lock_timeout', '0', true), pg_advisory_lock(hashtext($1))", name
        )
        yield
    finally:
        # Even after a cancelled wait: the lock may have been granted at that moment.
        await connection.execute(UNLOCK, name)


@asynccontextmanager
async def hold_session_lock(dsn: str, name: str) -> AsyncIterator[asyncio.Event]:
    """Lock a name with a connection of its own; yield an event that is set when it is lost.

    The server releases the lock when this process ends, however it ends. Raises
    DatabaseUnavailable.
    """
    connection = await connect(dsn, name=name, settings=KEEPALIVE_SETTINGS)
    lost = asyncio.Event()
    try:
        connection.add_termination_listener(lambda _: lost.set())
        with translate_database_errors():
            await connection.execute("select pg_advisory_lock(hashtext($1))", name)
        yield lost
    finally:
        # `close` would wait for an answer of a server that may be gone.
        connection.terminate()


async def share_visibility_lock(connection: Connection, generation: str) -> None:
    """Share the lock with other activating transactions; waits while `hold_visibility_lock` is
    active.

    Call it first in the transaction. A transaction that waits with an id or other locks would block
    others, above all readers of the log.
    """
    await connection.execute(
        "select pg_advisory_xact_lock_shared(hashtext($1))", _format_visibility_lock(generation)
    )


@asynccontextmanager
async def hold_visibility_lock(
    connection: Connection, generation: str, *, wait_s: float
) -> AsyncIterator[None]:
    """Block the activation of revisions in a generation, while it is compared with another.

    Waits until activating transactions have committed. Raises TransientError with code
    VISIBILITY_LOCKED if one takes longer than `wait_s`; others wait behind it meanwhile. Call it
    outside any transaction: an open one blocks readers of the log, and with them the generation
    that has to catch up.
    """
    name = _format_visibility_lock(generation)
    try:
        try:
            async with asyncio.timeout(wait_s):
                await connection.execute("select pg_advisory_lock(hashtext($1))", name)
        except TimeoutError:
            raise TransientError(
                f"Timed out after {wait_s:g} s waiting for a transaction that activates a "
                f"revision in {generation}.",
                code="VISIBILITY_LOCKED",
                remedy="Run `anabranch topics lag` to see the oldest transaction, then try again.",
            ) from None
        yield
    finally:
        # Even after a cancelled wait: the lock may have been granted at that moment.
        await connection.execute(UNLOCK, name)


def _format_visibility_lock(generation: str) -> str:
    return f"visible revisions of {generation}"
