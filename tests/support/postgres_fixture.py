"""An embedded Postgres for the session, and for each test a fresh database cloned from a migrated
template.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from sql.embedded.host import find_server_account, find_wheel_binaries
from sql.embedded.server import EPHEMERAL_SETTINGS, ROLE, ROLES_SQL, EmbeddedPostgres
from sql.operations.migrate import migrate

if TYPE_CHECKING:
    from tests.support.containers import ContainerPostgres

T = TypeVar("T")
TEMPLATE = "migrated"
SHARED_MEMORY = Path("/dev/shm")
MIN_MEMORY_BYTES = 6 << 30
"""Four test processes have a server each, of which one takes up to 1 GiB."""


def run_in_thread(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine from a place that may already have a loop."""

    async def run() -> T:
        return await work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(run())).result()


def execute_sql(dsn: str, statement: str) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    run_in_thread(execute)


def database_dsn(dsn: str, database: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


def tcp_dsn(server: EmbeddedPostgres, dsn: str) -> str:
    """The address of the same database by TCP, with its password, for clients that know no Unix
    sockets.
    """
    password = server.password_file.read_text().strip().rpartition(":")[2]
    tcp = urlsplit(server.tcp_dsn or "")
    return urlunsplit(
        tcp._replace(
            netloc=f"{tcp.username}:{password}@{tcp.hostname}:{tcp.port}", path=urlsplit(dsn).path
        )
    )


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Exclude the other test processes."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def ensure_initdb() -> Path:
    """A data folder as initdb leaves it, made once on this machine for this version of the
    binaries.
    """
    roles = hashlib.sha256(ROLES_SQL.read_bytes()).hexdigest()[:8]
    stamp = f"{os.geteuid()}-{find_wheel_binaries().stat().st_mtime_ns:x}-{roles}"
    cached = Path(tempfile.gettempdir()) / f"anabranch-initdb-{stamp}"
    # All processes of a run begin at once, and one of them is enough to make it.
    with lock_file(cached.with_suffix(".lock")):
        if not (cached / "data" / "PG_VERSION").exists():
            scratch = Path(tempfile.mkdtemp(prefix="anabranch-initdb-"))
            server = EmbeddedPostgres(scratch, settings=EPHEMERAL_SETTINGS)
            server.start()
            server.stop()
            scratch.rename(cached)
    return cached / "data"


def choose_service_folder() -> str:
    """Choose where servers keep their data: in memory where there is enough of it.

    A cloned database has 500 files. Cloning it takes 0.07 s of CPU and wall time in memory and
    0.4 s on a disk, and over 2 s on a disk that other tests use at the same time.
    """
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
        status = os.statvfs(SHARED_MEMORY)
        if status.f_bavail * status.f_frsize >= MIN_MEMORY_BYTES:
            return str(SHARED_MEMORY)
    return tempfile.gettempdir()


def create_data_root(root: Path | None = None) -> Path:
    """Copy what initdb makes to `root`, or to a new folder outside pytest's own, which is closed to
    the account that runs Postgres when the tests run as root.
    """
    if root is None:
        root = Path(tempfile.mkdtemp(prefix="anabranch-test-", dir=choose_service_folder()))
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(ensure_initdb()), str(root / "data")], check=True)
    if account := find_server_account():
        os.chown(root, account.pw_uid, account.pw_gid)
    return root


def allow_direct_readers(server: EmbeddedPostgres, root: Path) -> None:
    """Let logins that are members of the role for direct access sign in by password, as they would
    on a server of one's own.
    """
    with (root / "data" / "pg_hba.conf").open("a") as file:
        file.write("host all +anabranch_reader 127.0.0.1/32 scram-sha-256\n")
    execute_sql(server.superuser_dsn, "select pg_reload_conf()")


@contextmanager
def run_postgres() -> Iterator[EmbeddedPostgres]:
    """A server without a past, that waits for no disk. It is gone when the context is left.

    The role may also create databases and replicate, as the user of a source's database would."""
    root = create_data_root()
    server = EmbeddedPostgres(
        root,
        settings={**EPHEMERAL_SETTINGS, "max_connections": "200", "max_wal_size": "512MB"},
        tcp=0,
    )
    server.start()
    try:
        execute_sql(
            server.superuser_dsn,
            f"alter role {ROLE} createdb replication; grant pg_signal_backend to {ROLE}",
        )
        allow_direct_readers(server, root)
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedPostgres | ContainerPostgres]:
    if not pytestconfig.getoption("--containers"):
        with run_postgres() as server:
            yield server
        return
    from tests.support.containers import require_docker, run_postgres_container

    require_docker()
    with run_postgres_container() as container:
        yield container


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    execute_sql(postgres_server.dsn, f'create database "{TEMPLATE}"')
    run_in_thread(lambda: migrate(database_dsn(postgres_server.dsn, TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def empty_database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database without any table of ours."""
    yield from clone_database(postgres_server.dsn, "template1")


@pytest.fixture
def database(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    yield from clone_database(postgres_server.dsn, template_database)


@pytest.fixture
def superuser_database(postgres_server: EmbeddedPostgres, database: str) -> str:
    """The address of `database` for what only a superuser may do, such as changing the catalog."""
    return database_dsn(postgres_server.superuser_dsn, urlsplit(database).path[1:])


@pytest.fixture
def other_database(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """A second one, to compare with."""
    yield from clone_database(postgres_server.dsn, template_database)


def clone_database(dsn: str, template: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    execute_sql(dsn, f'create database "{name}" template "{template}" strategy file_copy')
    try:
        yield database_dsn(dsn, name)
    finally:
        execute_sql(dsn, f'drop database "{name}" with (force)')
