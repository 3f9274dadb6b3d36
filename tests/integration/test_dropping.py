"""A generation goes while the others are read and written, whoever has a transaction open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio

from schemas.errors import LogUnavailable, NotFound, PermanentError, TransientError
from schemas.rows import BuiltRow, GenerationRow
from sql.derived_tables import PARTITIONED
from sql.dropping import dropped, give_up, remove
from sql.ledger import PgLedger
from sql.pool import Pool, close_pool, open_pool
from tests.integration.test_ledger import G1, claim, decide, generation, revision

G2 = generation("g2")
WORDS = ["heron", "stork"]


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=8, name="test")
    await decide(pool, GenerationRow(G1), GenerationRow(G2, "g1", "rebuild"), BuiltRow("g2", {}))
    accepted, *derived = revision("d", 1, WORDS)
    await claim(PgLedger(pool, G1), accepted)
    for one in (G1, G2):
        await claim(PgLedger(pool, one), *derived)
    yield pool
    await close_pool(pool)


async def published(name: str) -> int:
    return 100


@asynccontextmanager
async def reader(database: str, query: str) -> AsyncIterator[None]:
    """A transaction that has read something and stays open."""
    connection = await asyncpg.connect(database, server_settings={"search_path": "anabranch"})
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch(query)
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()


async def rows(pool: Pool, name: str) -> int:
    return sum([await pool.fetchval(f"select count(*) from {table} where generation = $1", name) for table in PARTITIONED])


async def tables(pool: Pool, name: str) -> int:
    return int(await pool.fetchval("select count(*) from pg_class where relname = any ($1::text[])", [f"{table}_{name}" for table in PARTITIONED]))


async def test_a_dropped_generation_leaves_no_table_and_the_other_one_all_its_rows(pool: Pool) -> None:
    before = await rows(pool, "g1")
    await give_up(pool, "g2", published)
    assert await dropped(pool) == ["g2"]
    assert (await remove(pool, "g2")).removed
    assert await tables(pool, "g2") == 0 and await rows(pool, "g1") == before > 0
    assert await dropped(pool) == [] and (await remove(pool, "g2")).removed


async def test_its_rows_go_while_a_reader_of_another_generation_stays_open_and_its_tables_when_that_ends(pool: Pool, database: str) -> None:
    await give_up(pool, "g2", published)
    async with reader(database, "select count(*) from child_chunks where generation = 'g1'"):
        removal = await remove(pool, "g2", patience_s=0.5)
        assert not removal.removed and removal.held_by is not None and removal.held_by["state"] == "idle in transaction"
        assert await rows(pool, "g2") == 0
        assert await pool.fetchval("select count(*) from child_chunks") == len(WORDS)
        await claim(PgLedger(pool, G1), *revision("new", 2, WORDS))
        assert await dropped(pool) == ["g2"]
    assert (await remove(pool, "g2")).removed
    assert await dropped(pool) == []


async def test_what_a_reader_of_the_dropped_one_holds_goes_when_it_ends_and_queries_go_on(pool: Pool, database: str) -> None:
    await give_up(pool, "g2", published)
    async with reader(database, "select count(*) from child_chunks"):
        removing = asyncio.create_task(remove(pool, "g2", patience_s=0.5))
        while not removing.done():
            assert await pool.fetchval("select count(*) from child_chunks where generation = 'g1'") == len(WORDS)
        assert not (await removing).removed
    assert (await remove(pool, "g2")).removed


async def test_a_question_of_ours_that_is_under_way_sees_all_of_the_generation_until_it_ends(pool: Pool, database: str) -> None:
    connection = await asyncpg.connect(database, server_settings={"search_path": "anabranch", "application_name": "anabranch questions"})
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("select count(*) from visible where generation = 'g2'")
        await give_up(pool, "g2", published)
        removing = asyncio.create_task(remove(pool, "g2"))
        while not await pool.fetchval("select count(*) from pg_stat_activity where query like '%xact_start%' and pid <> pg_backend_pid()"):
            await asyncio.sleep(0.01)
        assert await connection.fetchval("select count(*) from child_chunks where generation = 'g2'") == len(WORDS)
    await connection.close()
    assert (await removing).removed


async def test_the_live_one_an_unknown_one_and_one_that_the_log_does_not_hear_of_stay(pool: Pool) -> None:
    with pytest.raises(PermanentError) as live:
        await give_up(pool, "g1", published)
    assert live.value.code == "GENERATION_IS_LIVE"
    with pytest.raises(NotFound):
        await give_up(pool, "g9", published)

    async def away(name: str) -> int:
        raise LogUnavailable("away")

    with pytest.raises(LogUnavailable):
        await give_up(pool, "g2", away)
    assert await dropped(pool) == [] and await rows(pool, "g2") > 0


async def test_a_worker_that_has_not_heard_yet_is_told_to_try_again_and_buries_nothing(pool: Pool) -> None:
    await give_up(pool, "g2", published)
    await remove(pool, "g2")
    accepted, *derived = revision("late", 3, WORDS)
    await claim(PgLedger(pool, G1), accepted)
    with pytest.raises(TransientError) as told:
        await claim(PgLedger(pool, G2), *derived)
    assert told.value.code == "GENERATION_DROPPED"


async def test_two_who_take_it_away_at_once_do_not_get_in_each_others_way(pool: Pool) -> None:
    await give_up(pool, "g2", published)
    await asyncio.gather(*(remove(pool, "g2") for _ in range(3)))
    assert (await remove(pool, "g2")).removed
