"""A source that nobody says the address of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from tests.integration.sources_world import SourceWorld, source_world

KEPT = "select (select count(*) from anabranch.source_notes) + (select count(*) from anabranch.source_states)"


async def stopped(world: SourceWorld) -> str:
    """Why its reader stopped."""
    async with asyncio.timeout(60):
        while (found := await world.source("crm")).get("state") != "failed":
            await asyncio.sleep(0.05)
    return str(found["status"]["code"])


async def test_once_it_is_removed_nothing_is_tried_any_more(database: str, tmp_path: Path) -> None:
    connection = await asyncpg.connect(database)
    try:
        async with source_world(tmp_path, database) as world:
            await world.add("crm", {"kind": "postgres", "table": "notes", "mapping": {"body": ["body"]}})
            assert await stopped(world) == "SOURCE_ADDRESS"
            await world.http.delete("/v1/sources/crm")
            async with asyncio.timeout(30):
                while await connection.fetchval(KEPT):
                    await asyncio.sleep(0.05)
    finally:
        await connection.close()
