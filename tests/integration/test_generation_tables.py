"""Partitions of generations: made, indexed and dropped beside what reads and writes; decisions that may be read twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest_asyncio

from schemas.rows import BuiltRow, DroppedRow, GenerationRow, LiveRow, Row
from sql.builds import PgBuilds
from sql.derived_tables import PARTITIONED
from sql.migrate import FOLDER, migrate
from sql.partitions import drop_partitions
from sql.pool import Pool, close_pool, open_pool
from sql.secondary_indexes import SECONDARY, build_indexes
from tests.integration.test_ledger import G1, decide, generation
from tests.postgres_fixture import administer

HISTORY: tuple[Row, ...] = (
    GenerationRow(G1),
    GenerationRow(generation("g2"), "g1", "rebuild"),
    BuiltRow("g2", {"chunked": {0: 12}}),
    LiveRow("g2", 20),
    LiveRow("g1", 30),
    GenerationRow(generation("g3"), "g1", "reindex"),
    BuiltRow("g3", {}),
    LiveRow("g3", 40),
    DroppedRow("g1"),
)


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=6, name="test")
    await decide(pool, GenerationRow(G1))
    yield pool
    await close_pool(pool)


async def indexes(pool: Pool, name: str) -> dict[str, str]:
    rows = await pool.fetch(
        "select replace(indexname, $1, 'G') as name, replace(indexdef, $1, 'G') as definition from pg_indexes where tablename = any($2::text[])",
        name,
        [f"{table}_{name}" for table in PARTITIONED],
    )
    return {row["name"]: row["definition"] for row in rows}


async def decisions(pool: Pool) -> list[dict[str, Any]]:
    rows = await pool.fetch("select name, state, base, purpose, barrier, l.decided_at from generations left join live_generation l using (name) order by name")
    return [dict(row) for row in rows]


async def test_decisions_that_are_all_read_again_change_nothing(pool: Pool) -> None:
    await decide(pool, *HISTORY)
    before = await decisions(pool)
    assert {row["name"]: row["state"] for row in before} == {"g1": "dropped", "g2": "standby", "g3": "live"}
    assert next(row["barrier"] for row in before if row["name"] == "g2") == {"chunked": {"0": 12}}
    await decide(pool, *HISTORY)
    assert await decisions(pool) == before


async def test_a_promotion_that_is_read_late_does_not_undo_a_later_one(pool: Pool) -> None:
    await decide(pool, GenerationRow(generation("g2"), "g1", "rebuild"), LiveRow("g1", 9), LiveRow("g2", 7))
    assert await pool.fetchval("select name from live_generation") == "g1"


async def test_the_generation_that_answers_cannot_be_dropped(pool: Pool) -> None:
    await decide(pool, DroppedRow("g1"))
    assert [row["state"] for row in await decisions(pool)] == ["live"]


async def test_a_building_generation_has_primary_keys_only_and_then_all_the_indexes_of_the_first(pool: Pool) -> None:
    await decide(pool, GenerationRow(generation("g2"), "g1", "rebuild"))
    assert all("_pkey" in name for name in await indexes(pool, "g2"))
    assert [name async for name in build_indexes(pool, "g2")] == [index.name("g2") for index in SECONDARY]
    assert await indexes(pool, "g2") == await indexes(pool, "g1")
    assert [name async for name in build_indexes(pool, "g2")] == []


async def test_an_index_whose_build_was_cut_off_is_built_again(pool: Pool, superuser_database: str) -> None:
    await decide(pool, GenerationRow(generation("g2"), "g1", "rebuild"))
    half = SECONDARY[0].name("g2")
    await pool.execute(SECONDARY[0].definition("g2", concurrently=False))
    administer(superuser_database, f"update pg_index set indisvalid = false where indexrelid = 'anabranch.{half}'::regclass")
    assert half in [name async for name in build_indexes(pool, "g2")]
    assert await pool.fetchval("select indisvalid from pg_index where indexrelid = $1::regclass", half)


async def test_a_database_of_before_gets_the_same_indexes_by_migration(empty_database: str, tmp_path: Any) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    for path in FOLDER.glob("*.sql"):
        if path.name < "20261122000007":
            (earlier / path.name).write_text(path.read_text())
    await migrate(empty_database, earlier)
    pool = await open_pool(empty_database, size=2, name="test")
    await pool.execute("insert into generations (name, config, how, topics, state) values ('g1', '{}', '{}', '{}', 'live')")
    for table in PARTITIONED:
        await pool.execute(f"create table {table}_g1 (like {table} including all); alter table {table} attach partition {table}_g1 for values in ('g1')")
    await migrate(empty_database)
    await decide(pool, GenerationRow(generation("g2")))
    upgraded, fresh = await indexes(pool, "g1"), await indexes(pool, "g2")
    await close_pool(pool)
    assert upgraded == fresh


async def test_partitions_go_while_a_reader_is_held_open_and_queries_go_on(pool: Pool, database: str) -> None:
    await decide(pool, GenerationRow(generation("g2")))
    reader = await asyncpg.connect(database, server_settings={"search_path": "anabranch"})
    transaction = reader.transaction()
    await transaction.start()
    await reader.fetch("select count(*) from child_chunks where generation = 'g1'")
    dropping = asyncio.create_task(drop_partitions(pool, "g2"))
    for _ in range(20):
        assert await pool.fetchval("select count(*) from child_chunks where generation = 'g1'") == 0
    await transaction.rollback()
    await reader.close()
    assert await dropping == len(PARTITIONED)
    assert await indexes(pool, "g2") == {}
    assert await drop_partitions(pool, "g2") == 0
    assert len(await indexes(pool, "g1")) > len(PARTITIONED)


async def test_a_build_that_asked_no_engine_leaves_its_connection_as_it_was(database: str) -> None:
    """asyncpg opens a transaction for many statements, and leaves it open where there are none."""
    pool = await open_pool(database, size=1, name="test")
    await PgBuilds(pool).asked("g2", {})
    await PgBuilds(pool).asked("g2", {"embed": 2})
    await PgBuilds(pool).asked("g2", {"embed": 3, "parse": 1})
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        rows = await connection.fetch("select engine, inputs from generation_engine_calls where generation = 'g2' order by engine")
    await close_pool(pool)
    assert [tuple(row) for row in rows] == [("embed", 5), ("parse", 1)]
