"""An embedded Postgres for the session, and for each test a fresh database cloned from a migrated template."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from sql.binaries import wheel_binaries
from sql.embedded import ROLE, ROLES_SQL, THROWAWAY, EmbeddedPostgres
from sql.migrate import migrate
from sql.server_account import server_account

T = TypeVar("T")
TEMPLATE = "migrated"


def elsewhere(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine from a place that may already have a loop."""

    async def run() -> T:
        return await work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(run())).result()


def administer(dsn: str, statement: str) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    elsewhere(execute)


def database_dsn(dsn: str, database: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


def tcp_dsn(server: EmbeddedPostgres, dsn: str) -> str:
    """The address of the same database by TCP, with its password, for clients that know no Unix sockets."""
    password = server.password_file.read_text().strip().rpartition(":")[2]
    tcp = urlsplit(server.tcp_dsn or "")
    return urlunsplit(tcp._replace(netloc=f"{tcp.username}:{password}@{tcp.hostname}:{tcp.port}", path=urlsplit(dsn).path))


def _initialised() -> Path:
    """A data folder as initdb leaves it, made once on this machine for this version of the binaries."""
    roles = hashlib.sha256(ROLES_SQL.read_bytes()).hexdigest()[:8]
    stamp = f"{os.geteuid()}-{wheel_binaries().stat().st_mtime_ns:x}-{roles}"
    kept = Path(tempfile.gettempdir()) / f"anabranch-initdb-{stamp}"
    if not (kept / "data" / "PG_VERSION").exists():
        draft = Path(tempfile.mkdtemp(prefix="anabranch-initdb-"))
        server = EmbeddedPostgres(draft, settings=THROWAWAY)
        server.start()
        server.stop()
        try:
            draft.rename(kept)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
    return kept / "data"


def fresh_root() -> Path:
    """Outside pytest's own folder, which is closed to the account that runs Postgres when the tests run as root."""
    root = Path(tempfile.mkdtemp(prefix="anabranch-test-"))
    subprocess.run(["cp", "-a", str(_initialised()), str(root / "data")], check=True)
    if account := server_account():
        os.chown(root, account.pw_uid, account.pw_gid)
    return root


def admit_direct_readers(server: EmbeddedPostgres, root: Path) -> None:
    """Let logins that are members of the role for direct access sign in by password, as they would on a server of one's own."""
    with (root / "data" / "pg_hba.conf").open("a") as file:
        file.write("host all +anabranch_reader 127.0.0.1/32 scram-sha-256\n")
    administer(server.superuser_dsn, "select pg_reload_conf()")


@contextmanager
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """A server without a past, that waits for no disk. It is gone when the context is left.

    The role may also create databases and replicate, as the user of a source's database would."""
    root = fresh_root()
    server = EmbeddedPostgres(root, settings={**THROWAWAY, "max_connections": "200", "max_wal_size": "1GB"}, tcp=0)
    server.start()
    try:
        administer(server.superuser_dsn, f"alter role {ROLE} createdb replication; grant pg_signal_backend to {ROLE}")
        admit_direct_readers(server, root)
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    administer(postgres_server.dsn, f'create database "{TEMPLATE}"')
    elsewhere(lambda: migrate(database_dsn(postgres_server.dsn, TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def empty_database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database without any table of ours."""
    yield from cloned(postgres_server.dsn, "template1")


@pytest.fixture
def database(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    yield from cloned(postgres_server.dsn, template_database)


@pytest.fixture
def superuser_database(postgres_server: EmbeddedPostgres, database: str) -> str:
    """The address of `database` for what only a superuser may do, such as changing the catalog."""
    return database_dsn(postgres_server.superuser_dsn, urlsplit(database).path[1:])


@pytest.fixture
def other_database(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """A second one, to compare with."""
    yield from cloned(postgres_server.dsn, template_database)


def cloned(dsn: str, template: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    administer(dsn, f'create database "{name}" template "{template}" strategy file_copy')
    try:
        yield database_dsn(dsn, name)
    finally:
        administer(dsn, f'drop database "{name}" with (force)')
