"""Apply forward-only migrations from plain SQL files.

File names and the bookkeeping table are those of the Supabase CLI, so `supabase db push` applies
the same migrations.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from schemas.errors import ConfigurationError
from sql.errors import translate_database_errors

FOLDER = Path(__file__).parents[1] / "migrations"
FILE_NAME = re.compile(r"(\d{14})_([a-z0-9_]+)\.sql")
# ASCII "anab": any fixed number that other users of the database do not lock.
LOCK_KEY = 0x616E6162
NO_TRANSACTION = "-- no-transaction"
BOOKKEEPING_DDL = """
create schema if not exists supabase_migrations;
create table if not exists supabase_migrations.schema_migrations (
  version text primary key, statements text[], name text
);
create schema if not exists anabranch;
create table if not exists anabranch.migration_checksums (
  version text primary key,
  sha256 text not null,
  applied_at timestamptz not null default clock_timestamp()
);
"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: str
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def file(self) -> str:
        return f"{self.version}_{self.name}.sql"


async def migrate(dsn: str, folder: Path = FOLDER) -> list[str]:
    """Apply missing migrations in order and return their file names. Safe to call concurrently.

    Needs a session connection, not a transaction pooler. Raises ConfigurationError for an edited or
    badly named file and for tables older than the first file, and DatabaseUnavailable.
    """
    migrations = read_migrations(folder)
    settings = {"lock_timeout": "30s", "application_name": "anabranch migrate"}
    async with open_session(dsn, **settings) as connection:
        # Polled: a call blocked in pg_advisory_lock holds a snapshot, and CREATE INDEX CONCURRENTLY
        # waits for snapshots.
        while not await connection.fetchval("select pg_try_advisory_lock($1)", LOCK_KEY):
            await asyncio.sleep(0.1)
        await connection.execute(BOOKKEEPING_DDL)
        missing = await _find_missing(connection, migrations)
        for migration in missing:
            await _apply_migration(connection, migration)
        return [migration.file for migration in missing]


@asynccontextmanager
async def open_session(dsn: str, **settings: str) -> AsyncIterator[asyncpg.Connection]:
    # No pool: its set-up needs the vector extension, which the database may lack. No statement
    # cache: plans from before a migration would refer to the old tables, and the DSN may point to a
    # transaction pooler.
    with translate_database_errors():
        connection = await asyncpg.connect(dsn, statement_cache_size=0, server_settings=settings)
        try:
            yield connection
        finally:
            await connection.close()


def read_migrations(folder: Path = FOLDER) -> list[Migration]:
    migrations = []
    for path in sorted(folder.glob("*.sql")):
        match = FILE_NAME.fullmatch(path.name)
        if not match:
            raise ConfigurationError(
                f"Invalid migration file name {path.name!r}.",
                remedy="Rename it to <14 digits>_<lower_case_words>.sql.",
            )
        migrations.append(Migration(match[1], match[2], path.read_text()))
    return migrations


async def _find_missing(
    connection: asyncpg.Connection, migrations: list[Migration]
) -> list[Migration]:
    applied = {
        row[0]
        for row in await connection.fetch(
            "select version from supabase_migrations.schema_migrations"
        )
    }
    checksums = {
        row[0]: row[1]
        for row in await connection.fetch(
            "select version, sha256 from anabranch.migration_checksums"
        )
    }
    # Later versions than ours belong to a newer program, next to which this one may run.
    if earlier := sorted(version for version in checksums if version < migrations[0].version):
        raise ConfigurationError(
            f"The tables were created by a development version: migration {earlier[0]} is older "
            f"than {migrations[0].file}.",
            code="DEVELOPMENT_TABLES",
            remedy="Use a new data folder or an empty database, and ingest the documents again.",
        )
    for migration in migrations:
        if (
            migration.version in applied
            and checksums.get(migration.version, migration.sha256) != migration.sha256
        ):
            raise ConfigurationError(
                f"{migration.file} was edited after it was applied.",
                code="EDITED_MIGRATION",
                remedy="Restore the file and add a new migration.",
            )
    return [migration for migration in migrations if migration.version not in applied]


async def _apply_migration(connection: asyncpg.Connection, migration: Migration) -> None:
    if migration.sql.lstrip().startswith(NO_TRANSACTION):
        # One call per statement: several in one call form an implicit transaction block.
        # Statements must be repeatable: a crash before the record runs all of them again.
        for statement in filter(str.strip, migration.sql.split(";\n")):
            await connection.execute(statement)
        await _record_migration(connection, migration)
        return
    # One transaction: a migration is applied and recorded, or neither.
    async with connection.transaction():
        await connection.execute(migration.sql)
        await _record_migration(connection, migration)


async def _record_migration(connection: asyncpg.Connection, migration: Migration) -> None:
    await connection.execute(
        "insert into supabase_migrations.schema_migrations (version, statements, name) values "
        "($1, $2, $3)",
        migration.version,
        [migration.sql],
        migration.name,
    )
    await connection.execute(
        "insert into anabranch.migration_checksums (version, sha256) values ($1, $2)",
        migration.version,
        migration.sha256,
    )
