"""Detect whether an index changed since a snapshot, in any order of commits."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from schemas.errors import DatabaseUnavailable
from schemas.ports.search import SnapshotVersion
from sql.database import ASYNC_COMMIT_SETTINGS, Connection, Pool, close_pool, open_pool
from sql.invalidation import (
    ALL_GENERATIONS,
    CHANGE_RETENTION_S,
    IndexChangePruner,
    PgIndexChanges,
    delete_foreign_changes,
    record_index_change,
)
from sql.operations.migrate import migrate
from tests.support.eventually import eventually
from tests.support.postgres_fixture import run_postgres

SNAPSHOT_QUERY = "select xact_counter_epoch() || ' ' || pg_current_snapshot()"


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    found = await open_pool(database, size=4, name="test")
    yield found
    await close_pool(found)


@asynccontextmanager
async def note_change_in_transaction(
    pool: Pool, generation: str = "g1", tenant: str = "default"
) -> AsyncIterator[Connection]:
    """Note a change and commit at the end of the context."""
    async with pool.acquire() as connection, connection.transaction():
        await record_index_change(connection, generation, [tenant])
        yield connection


async def take_index_snapshot(
    pool: Pool, tenant: str = "default", generation: str = "g1"
) -> SnapshotVersion:
    return SnapshotVersion(tenant, generation, await pool.fetchval(SNAPSHOT_QUERY))


async def is_unchanged(pool: Pool, standing: SnapshotVersion) -> bool:
    return (await PgIndexChanges(pool).check_unchanged([standing]))[0]


async def test_snapshot_is_valid_until_a_change_commits(pool: Pool) -> None:
    before = await take_index_snapshot(pool)
    async with note_change_in_transaction(pool):
        assert await is_unchanged(pool, before)
        during = await take_index_snapshot(pool)
    assert not await is_unchanged(pool, before) and not await is_unchanged(pool, during)
    assert await is_unchanged(pool, await take_index_snapshot(pool))


async def test_change_committing_out_of_order_invalidates_snapshot(pool: Pool) -> None:
    async with note_change_in_transaction(pool):
        async with note_change_in_transaction(pool):
            """Has a later number, and is there first."""
        between = await take_index_snapshot(pool)
        assert await is_unchanged(pool, between)
    assert not await is_unchanged(pool, between)


async def test_rolled_back_change_keeps_snapshot_valid(pool: Pool) -> None:
    before = await take_index_snapshot(pool)
    with pytest.raises(ZeroDivisionError):
        async with note_change_in_transaction(pool):
            raise ZeroDivisionError
    assert await is_unchanged(pool, before)


@pytest.mark.parametrize(
    ("generation", "tenant", "stand"),
    [
        ("g1", "default", False),
        (ALL_GENERATIONS, "default", False),
        ("g2", "default", True),
        ("g1", "other", True),
    ],
)
async def test_change_invalidates_only_its_tenant_and_generation(
    pool: Pool, generation: str, tenant: str, stand: bool
) -> None:
    before = await take_index_snapshot(pool)
    async with note_change_in_transaction(pool, generation, tenant):
        """Commits."""
    assert await is_unchanged(pool, before) is stand


async def test_many_snapshots_are_checked_in_order(pool: Pool) -> None:
    looks = [await take_index_snapshot(pool, tenant) for tenant in ("one", "two", "three")]
    async with note_change_in_transaction(pool, tenant="two"):
        """Commits."""
    assert await PgIndexChanges(pool).check_unchanged(looks) == [True, False, True]
    assert await PgIndexChanges(pool).check_unchanged([]) == []


async def test_snapshot_of_another_server_or_database_is_invalid(
    pool: Pool, other_database: str
) -> None:
    other = await open_pool(other_database, size=1, name="test")
    try:
        assert not await is_unchanged(pool, await take_index_snapshot(other))
    finally:
        await close_pool(other)


async def test_changes_of_another_server_are_discarded(pool: Pool) -> None:
    async with note_change_in_transaction(pool, tenant="changed here"):
        """Commits."""
    await pool.execute(
        "insert into index_changes select (xact::text::bigint + 1000000)::text::xid8, 'default', "
        "generation from index_changes"
    )
    assert not await is_unchanged(pool, await take_index_snapshot(pool))
    async with note_change_in_transaction(pool, tenant="changing here"):
        await delete_foreign_changes(pool)
        look_of_now = await take_index_snapshot(pool)
    assert await is_unchanged(pool, look_of_now)
    assert {row["tenant"] for row in await pool.fetch("select tenant from index_changes")} == {
        "changed here",
        "changing here",
    }


async def test_snapshot_is_invalid_after_crash_reuses_transaction_ids() -> None:
    with run_postgres() as server:
        await migrate(server.dsn)
        crashing = await open_pool(server.dsn, size=1, name="test", settings=ASYNC_COMMIT_SETTINGS)
        try:
            async with note_change_in_transaction(crashing):
                """Not written to the disk yet."""
            before = await take_index_snapshot(crashing)
            assert await is_unchanged(crashing, before)
            os.kill(await crashing.fetchval("select pg_backend_pid()"), signal.SIGKILL)
            after = await eventually(
                lambda: _try_is_unchanged(crashing, before), lambda answer: answer is not None
            )
            assert after is False
        finally:
            await close_pool(crashing)


async def _try_is_unchanged(pool: Pool, standing: SnapshotVersion) -> bool | None:
    """Compare with an older snapshot; return None while the server recovers."""
    try:
        return await is_unchanged(pool, standing)
    except DatabaseUnavailable:
        return None


async def test_changes_are_pruned_when_no_snapshot_needs_them(pool: Pool) -> None:
    now = 0.0
    pruned = IndexChangePruner(pool, lambda: now)
    async with note_change_in_transaction(pool):
        """An old one."""
    await pruned.prune()
    async with note_change_in_transaction(pool) as slow:
        await pruned.prune()
        now += CHANGE_RETENTION_S
        await pruned.prune()
        assert await pool.fetchval("select count(*) from index_changes") == 0, (
            "the old one is forgotten, the slow one cannot be seen yet"
        )
        held = await take_index_snapshot(pool)
        await slow.execute("select 1")
    await pruned.prune()
    assert not await is_unchanged(pool, held), "one that took an hour is as old as its end"
    now += CHANGE_RETENTION_S
    await pruned.prune()
    assert await pool.fetchval("select count(*) from index_changes") == 0
