"""Create, index and drop partitions of generations beside readers and writers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from schemas.rows import Row
from sql.database import Pool, close_pool, open_pool
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.index.generations import PgGenerationBuilds
from sql.index.partitions import SECONDARY_INDEXES, build_indexes
from tests.support.document_rows import SampleDocument, insert_documents
from tests.support.eventually import eventually
from tests.support.generation_copies import (
    apply_control_rows,
    built_row,
    created_row,
    dropped_row,
    promoted_row,
)
from tests.support.ledger_events import G1, make_generation
from tests.support.postgres_fixture import execute_sql
from tests.support.search_stack import SearchStack

CONTROL_ROWS: tuple[Row, ...] = (
    created_row(G1),
    created_row(make_generation("g2"), "g1", "rebuild"),
    built_row("g2", {"chunked": {0: 12}}),
    promoted_row("g2", 20),
    promoted_row("g1", 30),
    created_row(make_generation("g3"), "g1", "reindex"),
    built_row("g3", {}),
    promoted_row("g3", 40),
    dropped_row("g1"),
)


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=6, name="test")
    await apply_control_rows(pool, created_row(G1))
    yield pool
    await close_pool(pool)


async def fetch_index_definitions(pool: Pool, name: str) -> dict[str, str]:
    rows = await pool.fetch(
        "select replace(indexname, $1, 'G') as name, replace(indexdef, $1, 'G') as definition "
        "from pg_indexes where tablename = any($2::text[])",
        name,
        [f"{table}_{name}" for table in PARTITIONED_TABLES],
    )
    return {row["name"]: row["definition"] for row in rows}


async def fetch_decisions(pool: Pool) -> list[dict[str, Any]]:
    rows = await pool.fetch(
        "select name, state, base, purpose, barrier, l.decided_at from generations left "
        "join live_generation l using (name) order by name"
    )
    return [dict(row) for row in rows]


async def test_replayed_decisions_change_nothing(pool: Pool) -> None:
    await apply_control_rows(pool, *CONTROL_ROWS)
    before = await fetch_decisions(pool)
    assert {row["name"]: row["state"] for row in before} == {
        "g1": "dropped",
        "g2": "standby",
        "g3": "live",
    }
    assert next(row["barrier"] for row in before if row["name"] == "g2") == {"chunked": {"0": 12}}
    await apply_control_rows(pool, *CONTROL_ROWS)
    assert await fetch_decisions(pool) == before


async def test_live_generation_cannot_be_dropped(pool: Pool) -> None:
    await apply_control_rows(pool, dropped_row("g1"))
    assert [row["state"] for row in await fetch_decisions(pool)] == ["live"]


async def test_indexes_are_created_after_the_build(pool: Pool) -> None:
    await apply_control_rows(pool, created_row(make_generation("g2"), "g1", "rebuild"))
    assert all("_pkey" in name for name in await fetch_index_definitions(pool, "g2"))
    assert [name async for name in build_indexes(pool, "g2")] == [
        index.format_name("g2") for index in SECONDARY_INDEXES
    ]
    assert await fetch_index_definitions(pool, "g2") == await fetch_index_definitions(pool, "g1")
    assert [name async for name in build_indexes(pool, "g2")] == []


async def test_partition_of_a_few_chunks_gets_statistics(stack: SearchStack) -> None:
    await insert_documents(stack.connection, SampleDocument("d", ["heron", "stork", "crane"]))

    async def count_analyzed_rows() -> float:
        query = "select reltuples from pg_class where relname = 'child_chunks_g1'"
        return float(await stack.connection.fetchval(query))

    await eventually(count_analyzed_rows, lambda n_rows: n_rows == 3)


async def test_interrupted_index_build_is_repeated(pool: Pool, superuser_database: str) -> None:
    await apply_control_rows(pool, created_row(make_generation("g2"), "g1", "rebuild"))
    half = SECONDARY_INDEXES[0].format_name("g2")
    await pool.execute(SECONDARY_INDEXES[0].format_ddl("g2", concurrently=False))
    execute_sql(
        superuser_database,
        f"update pg_index set indisvalid = false where indexrelid = 'anabranch.{half}'::regclass",
    )
    assert half in [name async for name in build_indexes(pool, "g2")]
    assert await pool.fetchval(
        "select indisvalid from pg_index where indexrelid = $1::regclass", half
    )


async def test_build_without_engine_calls_leaves_no_open_transaction(database: str) -> None:
    """asyncpg opens a transaction for many statements, and leaves it open where there are none."""
    pool = await open_pool(database, size=1, name="test")
    await PgGenerationBuilds(pool).add_engine_calls("g2", {})
    await PgGenerationBuilds(pool).add_engine_calls("g2", {"embed": 2})
    await PgGenerationBuilds(pool).add_engine_calls("g2", {"embed": 3, "parse": 1})
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        rows = await connection.fetch(
            "select engine, inputs from generation_engine_calls where generation = 'g2' "
            "order by engine"
        )
    await close_pool(pool)
    assert [tuple(row) for row in rows] == [("embed", 5), ("parse", 1)]
