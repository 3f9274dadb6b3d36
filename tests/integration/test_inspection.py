from __future__ import annotations

import asyncpg

from sql.inspection import horizon_holder, inspect, migration_status, pending
from sql.migrate import migrate, read_migrations


async def test_an_empty_database_has_every_migration_pending_and_a_migrated_one_none(empty_database: str) -> None:
    assert await pending(empty_database) == [migration.file for migration in read_migrations()]
    await migrate(empty_database)
    state = await inspect(empty_database)
    assert (state.version >= 15, state.pending) == (True, [])
    assert state.vector is not None
    assert all(row["applied_at"] is not None for row in await migration_status(empty_database))


async def test_the_transaction_that_holds_the_log_back_is_named(database: str) -> None:
    connection = await asyncpg.connect(database, server_settings={"application_name": "slow loader"})
    try:
        async with connection.transaction():
            await connection.execute("insert into anabranch.topics values ('held', 1, null)")
            holder = await horizon_holder(database)
            assert holder is not None
            assert (holder["application"], holder["pid"]) == ("slow loader", connection.get_server_pid())
        assert (await horizon_holder(database) or {}).get("application") != "slow loader"
    finally:
        await connection.close()
