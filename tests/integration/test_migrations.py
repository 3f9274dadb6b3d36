from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from schemas.errors import ConfigurationError
from sql.operations.migrate import migrate, read_migrations


def write_migration(folder: Path, name: str, sql: str) -> Path:
    path = folder / name
    path.write_text(sql)
    return path


async def list_tables(dsn: str) -> set[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return {
            row[0]
            for row in await connection.fetch(
                "select table_name from information_schema.tables where table_schema = 'anabranch'"
            )
        }
    finally:
        await connection.close()


async def test_migrations_apply_once_to_empty_database(empty_database: str) -> None:
    assert await migrate(empty_database) == [migration.file for migration in read_migrations()]
    assert await migrate(empty_database) == []
    assert {"events", "documents", "visible"} <= await list_tables(empty_database)


async def test_concurrent_runners_apply_each_migration_once(empty_database: str) -> None:
    applied = await asyncio.gather(*(migrate(empty_database) for _ in range(4)))
    assert sorted(name for names in applied for name in names) == [
        migration.file for migration in read_migrations()
    ]


async def test_edited_migration_is_rejected(empty_database: str, tmp_path: Path) -> None:
    path = write_migration(
        tmp_path, "20260101000000_first.sql", "create table anabranch.one (x int);"
    )
    await migrate(empty_database, tmp_path)
    path.write_text("create table anabranch.one (x bigint);")
    with pytest.raises(ConfigurationError, match="edited"):
        await migrate(empty_database, tmp_path)


async def test_tables_older_than_the_first_file_are_rejected(
    empty_database: str, tmp_path: Path
) -> None:
    first = write_migration(
        tmp_path, "20260101000000_first.sql", "create table anabranch.one (x int);"
    )
    await migrate(empty_database, tmp_path)
    first.unlink()
    write_migration(tmp_path, "20260102000000_baseline.sql", "create table anabranch.two (x int);")
    with pytest.raises(ConfigurationError, match="20260101000000 is older") as refusal:
        await migrate(empty_database, tmp_path)
    assert refusal.value.code == "DEVELOPMENT_TABLES"
    assert "two" not in await list_tables(empty_database)


async def test_older_program_accepts_newer_tables(empty_database: str, tmp_path: Path) -> None:
    write_migration(tmp_path, "20260101000000_first.sql", "create table anabranch.one (x int);")
    newer = write_migration(tmp_path, "20260102000000_second.sql", "select 1;")
    await migrate(empty_database, tmp_path)
    newer.unlink()
    assert await migrate(empty_database, tmp_path) == []


async def test_misnamed_file_is_rejected_before_applying_any(
    empty_database: str, tmp_path: Path
) -> None:
    write_migration(tmp_path, "20260101000000_first.sql", "create table anabranch.one (x int);")
    write_migration(tmp_path, "second.sql", "select 1;")
    with pytest.raises(ConfigurationError, match=r"second\.sql"):
        await migrate(empty_database, tmp_path)
    assert await list_tables(empty_database) == set()


async def test_failed_migration_is_rolled_back_alone(empty_database: str, tmp_path: Path) -> None:
    write_migration(tmp_path, "20260101000000_first.sql", "create table anabranch.one (x int);")
    write_migration(
        tmp_path, "20260101000001_second.sql", "create table anabranch.two (x int); select 1 / 0;"
    )
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty_database, tmp_path)
    assert await list_tables(empty_database) - {"migration_checksums"} == {"one"}


async def test_marked_migration_can_build_index_concurrently(
    empty_database: str, tmp_path: Path
) -> None:
    write_migration(tmp_path, "20260101000000_first.sql", "create table anabranch.one (x int);")
    write_migration(
        tmp_path,
        "20260101000001_second.sql",
        "-- no-transaction\ncreate index concurrently one_x on anabranch.one (x);\n"
        "comment on table anabranch.one is 'one';\n",
    )
    assert len(await migrate(empty_database, tmp_path)) == 2


async def test_migrations_are_recorded_like_supabase(database: str) -> None:
    connection = await asyncpg.connect(database)
    booked = await connection.fetch(
        "select version, name from supabase_migrations.schema_migrations order by version"
    )
    await connection.close()
    assert [(row["version"], row["name"]) for row in booked] == [
        (migration.version, migration.name) for migration in read_migrations()
    ]
