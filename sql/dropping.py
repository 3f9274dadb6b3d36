"""Giving a generation up for good, beside whatever reads and writes the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from schemas.errors import DatabaseUnavailable, NotFound, PermanentError
from sql.derived_tables import PARTITIONED
from sql.errors import database_errors
from sql.partitions import drop_partitions
from sql.past_texts import keep_run_texts
from sql.pool import Connection, Pool
from sql.statements import statement

KIND = 0x64726F70
"""Of advisory locks: their second number is the generation's."""
LOCK_TIMEOUT = "500ms"
QUESTIONS_S = 10.0
"""What was asked before the drop may take so long."""
PATIENCE_S = 3.0
POLL_S = 0.05

PublishDrop = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Removal:
    """`removed` once no table of the generation is left; until then `held_by` may say who keeps one open. Its rows may be gone earlier."""

    removed: bool
    held_by: dict[str, Any] | None = None


async def give_up(pool: Pool, name: str, publish: PublishDrop) -> None:
    """No question and no worker uses it any more. The decision is in the log first. Raises NotFound, PermanentError with code GENERATION_IS_LIVE,
    LogUnavailable, DatabaseUnavailable; then nothing has changed."""
    with database_errors():
        async with pool.acquire(timeout=60) as connection, connection.transaction():
            # No switch to it meanwhile.
            await connection.execute("select from live_generation for update")
            row = await connection.fetchrow(statement("begin_drop"), name)
            if row is None or row["state"] == "dropped":
                raise NotFound(f"no generation {name!r}", code="NO_SUCH_GENERATION", remedy="`anabranch generations list` shows them.")
            if row["live"]:
                remedy = "Promote another one first, or roll back."
                raise PermanentError(f"generation {name} is the one that answers", code="GENERATION_IS_LIVE", remedy=remedy)
            await publish(name)
            await connection.execute(statement("generation_dropped"), name)


async def remove(pool: Pool, name: str, *, patience_s: float = PATIENCE_S) -> Removal:
    """Take the tables of a dropped generation away: emptied within seconds also while a transaction that has read other generations stays open, detached
    and dropped when it ends. What is left after `patience_s` a later call finishes. Raises DatabaseUnavailable."""
    with database_errors():
        async with pool.acquire(timeout=60) as connection, _alone(connection, name) as alone:
            if alone and await _is_left(pool, name):
                await _take_away(pool, connection, name, patience_s)
    left = await _is_left(pool, name)
    return Removal(not left, await _holder(pool, name) if left else None)


@asynccontextmanager
async def _alone(connection: Connection, name: str) -> AsyncIterator[bool]:
    """False while somebody else is at it."""
    alone = await connection.fetchval("select pg_try_advisory_lock($1, hashtext($2))", KIND, name)
    try:
        yield alone
    finally:
        if alone:
            await connection.execute("select pg_advisory_unlock($1, hashtext($2))", KIND, name)


async def _take_away(pool: Pool, connection: Connection, name: str, patience_s: float) -> None:
    await _questions_over(connection, await connection.fetchval("select clock_timestamp()"))
    await keep_run_texts(connection, name)
    for table in PARTITIONED:
        await _empty(connection, f"{table}_{name}")
    # The last: while another generation's partition is on its way out of the same table.
    with suppress(TimeoutError, DatabaseUnavailable, asyncpg.ObjectNotInPrerequisiteStateError):
        async with asyncio.timeout(patience_s):
            await drop_partitions(pool, name)


async def dropped(pool: Pool) -> list[str]:
    """Generations that are given up and have tables left. Raises DatabaseUnavailable."""
    with database_errors():
        names = await pool.fetch("select name from generations where state = 'dropped' order by name")
    return [row["name"] for row in names if await _is_left(pool, row["name"])]


async def _questions_over(connection: Connection, began: datetime) -> None:
    """A table that is emptied is empty for all, whatever snapshot they read: wait for those of ours who may not have come to it yet."""
    with suppress(TimeoutError):
        async with asyncio.timeout(QUESTIONS_S):
            while await connection.fetchval(statement("readers_of_tables"), began):
                await asyncio.sleep(POLL_S)


async def _empty(connection: Connection, partition: str) -> None:
    """Unless it is gone, or somebody reads it: then it goes as a whole, later."""
    with suppress(asyncpg.LockNotAvailableError, asyncpg.UndefinedTableError):
        async with connection.transaction():
            await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'; truncate anabranch.{partition}")


async def _is_left(pool: Pool, name: str) -> bool:
    with database_errors():
        return bool(
            await pool.fetchval(
                "select exists (select from pg_class where relnamespace = 'anabranch'::regnamespace and relname = any ($1::text[]))", _partitions(name)
            )
        )


async def _holder(pool: Pool, name: str) -> dict[str, Any] | None:
    with database_errors():
        row = await pool.fetchrow(statement("holders"), _partitions(name), list(PARTITIONED))
    return dict(row) if row else None


def _partitions(name: str) -> list[str]:
    return [f"{table}_{name}" for table in PARTITIONED]
