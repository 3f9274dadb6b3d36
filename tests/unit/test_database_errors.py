"""Transient database errors, and errors that must not be taken for them."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from schemas.errors import DatabaseUnavailable, LogUnavailable
from sql.errors import translate_database_errors, translate_log_errors

CONNECTION_LOST = asyncpg.InterfaceError("connection is closed")


async def fail_on_cancellation(by: BaseException) -> None:
    """A statement whose cancellation loses the connection."""
    with translate_database_errors():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise by  # noqa: B904


@pytest.mark.parametrize(
    "error",
    [
        CONNECTION_LOST,
        ConnectionResetError("gone"),
        asyncpg.InternalClientError("got result for unknown protocol state"),
    ],
)
async def test_cancellation_survives_statement_errors(error: Exception) -> None:
    task = asyncio.create_task(fail_on_cancellation(error))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_statement_timeout_is_database_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable), translate_database_errors():
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_lost_connection_without_own_cancellation_is_transient() -> None:
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    with pytest.raises(LogUnavailable), translate_log_errors():
        try:
            await waited
        except asyncio.CancelledError:
            raise CONNECTION_LOST  # noqa: B904


async def test_programming_error_is_not_translated() -> None:
    with pytest.raises(asyncpg.InterfaceError), translate_database_errors():
        raise asyncpg.InterfaceError("the server expects 2 arguments for this query, 1 was passed")
