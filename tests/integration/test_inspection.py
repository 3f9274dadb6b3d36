from __future__ import annotations

import asyncpg

from sql.operations.migrate import migrate, read_migrations
from sql.operations.monitoring import (
    fetch_horizon_holder,
    fetch_migration_status,
    inspect_database,
    list_pending_migrations,
)


async def test_pending_migrations_are_listed(empty_database: str) -> None:
    assert await list_pending_migrations(empty_database) == [
        migration.file for migration in read_migrations()
    ]
    await migrate(empty_database)
    state = await inspect_database(empty_database)
    assert (state.version >= 15, state.pending) == (True, [])
    assert state.vector is not None
    assert all(
        row["applied_at"] is not None for row in await fetch_migration_status(empty_database)
    )


async def test_transaction_holding_back_the_log_is_named(database: str) -> None:
    connection = await asyncpg.connect(
        database, server_settings={"application_name": "slow loader"}
    )
    try:
        async with connection.transaction():
            await connection.execute("insert into anabranch.topics values ('held', 1, null)")
            holder = await fetch_horizon_holder(database)
            assert holder is not None
            assert (holder["application"], holder["pid"]) == (
                "slow loader",
                connection.get_server_pid(),
            )
        assert (await fetch_horizon_holder(database) or {}).get("application") != "slow loader"
    finally:
        await connection.close()
