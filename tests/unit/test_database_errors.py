"""What passes by itself, and what must not be taken for it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from schemas.errors import DatabaseUnavailable, LogUnavailable
from sql.errors import database_errors, log_errors

LOST = asyncpg.InterfaceError("connection is closed")


async def interrupted(by: BaseException) -> None:
    """As a statement whose connection is lost by its interruption."""
    with database_errors():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise by  # noqa: B904


@pytest.mark.parametrize("error", [LOST, ConnectionResetError("gone"), asyncpg.InternalClientError("got result for unknown protocol state")])
async def test_whoever_is_cancelled_stays_cancelled_whatever_its_statement_fails_with(error: Exception) -> None:
    task = asyncio.create_task(interrupted(error))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_time_out_of_a_statement_is_a_database_that_does_not_answer() -> None:
    with pytest.raises(DatabaseUnavailable), database_errors():
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_connection_that_is_lost_to_nobody_s_cancellation_passes() -> None:
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    with pytest.raises(LogUnavailable), log_errors():
        try:
            await waited
        except asyncio.CancelledError:
            raise LOST  # noqa: B904


async def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(asyncpg.InterfaceError), database_errors():
        raise asyncpg.InterfaceError("the server expects 2 arguments for this query, 1 was passed")
