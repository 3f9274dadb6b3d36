"""A source whose DSN no setting names."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from tests.support.eventually import eventually
from tests.support.source_environment import SourceEnvironment, run_source_environment

REMAINING_ROWS_QUERY = (
    "select (select count(*) from anabranch.source_notes) + (select count(*) "
    "from anabranch.source_states)"
)


async def wait_for_failure_code(world: SourceEnvironment) -> str:
    """Wait until the reader of the source has failed and return its code."""
    source = await eventually(
        lambda: world.fetch_source("crm"), lambda source: source.get("state") == "failed"
    )
    return str(source["status"]["code"])


async def test_removed_source_without_dsn_is_not_retried(database: str, tmp_path: Path) -> None:
    connection = await asyncpg.connect(database)
    try:
        async with run_source_environment(tmp_path, database) as world:
            await world.add_source(
                "crm", {"kind": "postgres", "table": "notes", "mapping": {"body": ["body"]}}
            )
            assert await wait_for_failure_code(world) == "SOURCE_ADDRESS"
            await world.http.delete("/v1/sources/crm")
            await eventually(
                lambda: connection.fetchval(REMAINING_ROWS_QUERY), lambda rows: rows == 0
            )
    finally:
        await connection.close()
