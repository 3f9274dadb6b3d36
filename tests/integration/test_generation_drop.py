"""Drop a generation while others are read and written, despite open transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio

from schemas.errors import LogUnavailable, NotFound, PermanentError, TransientError
from sql.database import Pool, close_pool, open_pool
from sql.inbox.ledger import PgLedger
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.index.partitions import (
    begin_generation_drop,
    list_unremoved_generations,
    remove_generation_tables,
)
from tests.support.eventually import eventually
from tests.support.generation_copies import apply_control_rows, built_row, created_row
from tests.support.ledger_events import G1, claim_events, make_generation, make_revision_events

G2 = make_generation("g2")
WORDS = ["heron", "stork"]


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=8, name="test")
    await apply_control_rows(
        pool, created_row(G1), created_row(G2, "g1", "rebuild"), built_row("g2", {})
    )
    accepted, *derived = make_revision_events("d", 1, WORDS)
    await claim_events(PgLedger(pool, G1), accepted)
    for one in (G1, G2):
        await claim_events(PgLedger(pool, one), *derived)
    yield pool
    await close_pool(pool)


async def publish_drop(name: str) -> int:
    return 100


@asynccontextmanager
async def open_read_transaction(database: str, query: str) -> AsyncIterator[None]:
    """Open a transaction that has read something."""
    connection = await asyncpg.connect(database, server_settings={"search_path": "anabranch"})
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch(query)
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()


async def count_rows(pool: Pool, name: str) -> int:
    return sum(
        [
            await pool.fetchval(f"select count(*) from {table} where generation = $1", name)
            for table in PARTITIONED_TABLES
        ]
    )


async def count_tables(pool: Pool, name: str) -> int:
    return int(
        await pool.fetchval(
            "select count(*) from pg_class where relname = any ($1::text[])",
            [f"{table}_{name}" for table in PARTITIONED_TABLES],
        )
    )


async def test_drop_removes_all_tables_of_one_generation_only(pool: Pool) -> None:
    before = await count_rows(pool, "g1")
    await begin_generation_drop(pool, "g2", publish_drop)
    assert await list_unremoved_generations(pool) == ["g2"]
    assert (await remove_generation_tables(pool, "g2")).removed
    assert await count_tables(pool, "g2") == 0 and await count_rows(pool, "g1") == before > 0
    assert (
        await list_unremoved_generations(pool) == []
        and (await remove_generation_tables(pool, "g2")).removed
    )


async def test_drop_deletes_rows_first_and_tables_after_open_readers(
    pool: Pool, database: str
) -> None:
    await begin_generation_drop(pool, "g2", publish_drop)
    async with open_read_transaction(
        database, "select count(*) from child_chunks where generation = 'g1'"
    ):
        removal = await remove_generation_tables(pool, "g2", timeout_s=0.5)
        assert (
            not removal.removed
            and removal.blocked_by is not None
            and removal.blocked_by["state"] == "idle in transaction"
        )
        assert await count_rows(pool, "g2") == 0
        assert await pool.fetchval("select count(*) from child_chunks") == len(WORDS)
        await claim_events(PgLedger(pool, G1), *make_revision_events("new", 2, WORDS))
        assert await list_unremoved_generations(pool) == ["g2"]
    assert (await remove_generation_tables(pool, "g2")).removed
    assert await list_unremoved_generations(pool) == []


async def test_locked_partitions_are_dropped_after_reader_ends(pool: Pool, database: str) -> None:
    await begin_generation_drop(pool, "g2", publish_drop)
    async with open_read_transaction(database, "select count(*) from child_chunks"):
        removing = asyncio.create_task(remove_generation_tables(pool, "g2", timeout_s=0.5))
        while not removing.done():
            assert await pool.fetchval(
                "select count(*) from child_chunks where generation = 'g1'"
            ) == len(WORDS)
        assert not (await removing).removed
    assert (await remove_generation_tables(pool, "g2")).removed


async def test_running_query_sees_whole_generation_during_drop(pool: Pool, database: str) -> None:
    connection = await asyncpg.connect(
        database,
        server_settings={"search_path": "anabranch", "application_name": "anabranch questions"},
    )
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("select count(*) from visible where generation = 'g2'")
        await begin_generation_drop(pool, "g2", publish_drop)
        removing = asyncio.create_task(remove_generation_tables(pool, "g2"))
        await eventually(
            lambda: pool.fetchval(
                "select count(*) from pg_stat_activity where query like '%xact_start%' "
                "and pid <> pg_backend_pid()"
            )
        )
        assert await connection.fetchval(
            "select count(*) from child_chunks where generation = 'g2'"
        ) == len(WORDS)
    await connection.close()
    assert (await removing).removed


async def test_live_unknown_and_unpublished_generations_are_not_dropped(pool: Pool) -> None:
    with pytest.raises(PermanentError) as live:
        await begin_generation_drop(pool, "g1", publish_drop)
    assert live.value.code == "GENERATION_IS_LIVE"
    with pytest.raises(NotFound):
        await begin_generation_drop(pool, "g9", publish_drop)

    async def away(name: str) -> int:
        raise LogUnavailable("away")

    with pytest.raises(LogUnavailable):
        await begin_generation_drop(pool, "g2", away)
    assert await list_unremoved_generations(pool) == [] and await count_rows(pool, "g2") > 0


async def test_write_to_dropped_generation_raises_transient_error(pool: Pool) -> None:
    await begin_generation_drop(pool, "g2", publish_drop)
    await remove_generation_tables(pool, "g2")
    accepted, *derived = make_revision_events("late", 3, WORDS)
    await claim_events(PgLedger(pool, G1), accepted)
    with pytest.raises(TransientError) as caught:
        await claim_events(PgLedger(pool, G2), *derived)
    assert caught.value.code == "GENERATION_DROPPED"


async def test_concurrent_drops_do_not_conflict(pool: Pool) -> None:
    await begin_generation_drop(pool, "g2", publish_drop)
    await asyncio.gather(*(remove_generation_tables(pool, "g2") for _ in range(3)))
    assert (await remove_generation_tables(pool, "g2")).removed
