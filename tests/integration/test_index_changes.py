"""Whether an index is still as it was looked at, whatever commits in whatever order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from schemas.errors import DatabaseUnavailable
from schemas.ports.search import Standing
from sql.index_changes import EVERY_GENERATION, KEPT_S, PgIndexChanges, PrunedChanges, forget_foreign_changes, note_change
from sql.migrate import migrate
from sql.pool import RELAXED, Connection, Pool, close_pool, open_pool
from tests.postgres_fixture import own_postgres

STATE = "select counted_since() || ' ' || pg_current_snapshot()"


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    found = await open_pool(database, size=4, name="test")
    yield found
    await close_pool(found)


@asynccontextmanager
async def changing(pool: Pool, generation: str = "g1", tenant: str = "default") -> AsyncIterator[Connection]:
    """Commits at the end."""
    async with pool.acquire() as connection, connection.transaction():
        await note_change(connection, generation, [tenant])
        yield connection


async def look(pool: Pool, tenant: str = "default", generation: str = "g1") -> Standing:
    return Standing(tenant, generation, await pool.fetchval(STATE))


async def stands(pool: Pool, standing: Standing) -> bool:
    return (await PgIndexChanges(pool).unchanged([standing]))[0]


async def test_a_look_stands_until_a_change_commits(pool: Pool) -> None:
    before = await look(pool)
    async with changing(pool):
        assert await stands(pool, before)
        during = await look(pool)
    assert not await stands(pool, before) and not await stands(pool, during)
    assert await stands(pool, await look(pool))


async def test_a_change_that_began_before_another_and_commits_after_it_is_not_overlooked(pool: Pool) -> None:
    async with changing(pool):
        async with changing(pool):
            """Has a later number, and is there first."""
        between = await look(pool)
        assert await stands(pool, between)
    assert not await stands(pool, between)


async def test_what_is_rolled_back_changed_nothing(pool: Pool) -> None:
    before = await look(pool)
    with pytest.raises(ZeroDivisionError):
        async with changing(pool):
            raise ZeroDivisionError
    assert await stands(pool, before)


@pytest.mark.parametrize(
    ("generation", "tenant", "stand"), [("g1", "default", False), (EVERY_GENERATION, "default", False), ("g2", "default", True), ("g1", "other", True)]
)
async def test_a_change_ends_what_it_is_a_change_of(pool: Pool, generation: str, tenant: str, stand: bool) -> None:
    before = await look(pool)
    async with changing(pool, generation, tenant):
        """Commits."""
    assert await stands(pool, before) is stand


async def test_each_of_many_is_told_apart_in_their_order(pool: Pool) -> None:
    looks = [await look(pool, tenant) for tenant in ("one", "two", "three")]
    async with changing(pool, tenant="two"):
        """Commits."""
    assert await PgIndexChanges(pool).unchanged(looks) == [True, False, True]
    assert await PgIndexChanges(pool).unchanged([]) == []


async def test_a_look_at_another_server_or_database_does_not_stand(pool: Pool, other_database: str) -> None:
    other = await open_pool(other_database, size=1, name="test")
    try:
        assert not await stands(pool, await look(other))
    finally:
        await close_pool(other)


async def test_changes_that_bear_transactions_of_another_server_end_no_look(pool: Pool) -> None:
    async with changing(pool, tenant="changed here"):
        """Commits."""
    await pool.execute("insert into index_changes select (xact::text::bigint + 1000000)::text::xid8, 'default', generation from index_changes")
    assert not await stands(pool, await look(pool))
    async with changing(pool, tenant="changing here"):
        await forget_foreign_changes(pool)
        look_of_now = await look(pool)
    assert await stands(pool, look_of_now)
    assert {row["tenant"] for row in await pool.fetch("select tenant from index_changes")} == {"changed here", "changing here"}


async def test_a_look_does_not_stand_when_a_crash_has_made_the_server_count_transactions_once_more() -> None:
    with own_postgres() as server:
        await migrate(server.dsn)
        crashing = await open_pool(server.dsn, size=1, name="test", settings=RELAXED)
        try:
            async with changing(crashing):
                """Not written to the disk yet."""
            before = await look(crashing)
            assert await stands(crashing, before)
            os.kill(await crashing.fetchval("select pg_backend_pid()"), signal.SIGKILL)
            async with asyncio.timeout(30):
                while (after := await _answer(crashing, before)) is None:
                    await asyncio.sleep(0.05)
            assert after is False
        finally:
            await close_pool(crashing)


async def _answer(pool: Pool, standing: Standing) -> bool | None:
    """None while the server recovers."""
    try:
        return await stands(pool, standing)
    except DatabaseUnavailable:
        return None


async def test_changes_are_forgotten_when_nothing_is_compared_with_them_any_more(pool: Pool) -> None:
    now = 0.0
    pruned = PrunedChanges(pool, lambda: now)
    async with changing(pool):
        """An old one."""
    await pruned.once()
    async with changing(pool) as slow:
        await pruned.once()
        now += KEPT_S
        await pruned.once()
        assert await pool.fetchval("select count(*) from index_changes") == 0, "the old one is forgotten, the slow one cannot be seen yet"
        held = await look(pool)
        await slow.execute("select 1")
    await pruned.once()
    assert not await stands(pool, held), "one that took an hour is as old as its end"
    now += KEPT_S
    await pruned.once()
    assert await pool.fetchval("select count(*) from index_changes") == 0
