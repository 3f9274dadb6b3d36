"""Connections that all see one snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from asyncpg.pool import PoolConnectionProxy

from schemas.errors import DatabaseUnavailable
from sql.errors import translate_database_errors
from sql.pool import Pool

BEGIN_READ_ONLY = "begin isolation level repeatable read, read only; set local statement_timeout = '30s'"
"""No statement of a question runs longer, whoever forgot it."""


class SnapshotConnections:
    """Up to `limit` connections that import an exported snapshot, opened when they are needed. One whose statement failed or was cancelled is given back, not used again."""

    def __init__(self, pool: Pool, snapshot: str, limit: int) -> None:
        self._pool = pool
        self._begin = f"{BEGIN_READ_ONLY}; set transaction snapshot '{snapshot}'"
        self._turns = asyncio.Semaphore(limit)
        self._idle: list[PoolConnectionProxy] = []
        self._leaving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PoolConnectionProxy]:
        """A connection for one call. Raises DatabaseUnavailable."""
        with translate_database_errors():
            async with self._turns:
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
        if self._leaving:
            await asyncio.wait(self._leaving)

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
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


async def rollback_and_release(pool: Pool, connection: PoolConnectionProxy) -> None:
    """End the transaction and release the connection, however badly it is off. One that is lost has no transaction to end."""
    try:
        with suppress(DatabaseUnavailable), translate_database_errors():
            await connection.execute("rollback")
    finally:
        await pool.release(connection)
