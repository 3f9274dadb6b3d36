"""A source that nobody says the address of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from tests.support.source_environment import SourceEnvironment, run_source_environment

REMAINING_ROWS_QUERY = (
    "select (select count(*) from anabranch.source_notes) + (select count(*) "
    "from anabranch.source_states)"
)


async def wait_for_failure_code(world: SourceEnvironment) -> str:
    """Why its reader stopped."""
    async with asyncio.timeout(60):
        while (found := await world.fetch_source("crm")).get("state") != "failed":
            await asyncio.sleep(0.05)
    return str(found["status"]["code"])


async def test_removed_source_without_dsn_is_not_retried(database: str, tmp_path: Path) -> None:
    connection = await asyncpg.connect(database)
    try:
        async with run_source_environment(tmp_path, database) as world:
            await world.add_source(
                "crm", {"kind": "postgres", "table": "notes", "mapping": {"body": ["body"]}}
            )
            assert await wait_for_failure_code(world) == "SOURCE_ADDRESS"
            await world.http.delete("/v1/sources/crm")
            async with asyncio.timeout(30):
                while await connection.fetchval(REMAINING_ROWS_QUERY):
                    await asyncio.sleep(0.05)
    finally:
        await connection.close()
