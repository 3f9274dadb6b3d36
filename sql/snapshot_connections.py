"""Share one exported snapshot among several connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from asyncpg.pool import PoolConnectionProxy

from schemas.errors import DatabaseUnavailable
from sql.errors import translate_database_errors
from sql.pool import Pool

BEGIN_READ_ONLY = (
    "begin isolation level repeatable read, read only; set local statement_timeout = '30s'"
)
"""The statement timeout bounds queries whose client no longer waits."""


class SnapshotConnections:
    """Up to `limit` connections that import an exported snapshot, opened on demand.

    A connection whose statement failed or was cancelled is released, not reused.
    """

    def __init__(self, pool: Pool, snapshot: str, limit: int) -> None:
        self._pool = pool
        self._begin = f"{BEGIN_READ_ONLY}; set transaction snapshot '{snapshot}'"
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[PoolConnectionProxy] = []
        self._releases: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PoolConnectionProxy]:
        """Yield a connection for one call. Raises DatabaseUnavailable."""
        with translate_database_errors():
            async with self._slots:
                connection = self._idle.pop() if self._idle else await self._open_connection()
                try:
                    yield connection
                except BaseException:
                    self._release_in_background(connection)
                    raise
                self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            self._release_in_background(self._idle.pop())
        if self._releases:
            await asyncio.wait(self._releases)

    async def _open_connection(self) -> PoolConnectionProxy:
        connection = await self._pool.acquire()
        try:
            await connection.execute(self._begin)
        except BaseException:
            self._release_in_background(connection)
            raise
        return connection

    def _release_in_background(self, connection: PoolConnectionProxy) -> None:
        task = asyncio.create_task(rollback_and_release(self._pool, connection))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)


async def rollback_and_release(pool: Pool, connection: PoolConnectionProxy) -> None:
    """Roll back and release the connection, even if it is lost and has no transaction to end."""
    try:
        with suppress(DatabaseUnavailable), translate_database_errors():
            await connection.execute("rollback")
    finally:
        await pool.release(connection)
