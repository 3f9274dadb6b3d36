from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from schemas.errors import ConfigurationError, DatabaseUnavailable
from sql.embedded.host import (
    Account,
    can_enter,
    copy_binaries,
    detect_memory_bytes,
    find_server_account,
    find_wheel_binaries,
)
from sql.embedded.server import EPHEMERAL_SETTINGS, LOCATION_FILE, EmbeddedPostgres
from sql.operations.migrate import migrate
from sql.operations.monitoring import list_pending_migrations
from tests.support.postgres_fixture import create_data_root, run_in_thread, tcp_dsn

requires_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to run Postgres as another account"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that any account may enter."""
    path = Path(tempfile.mkdtemp(prefix="anabranch-embedded-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def run_server() -> Iterator[EmbeddedPostgres]:
    root = create_data_root()
    server = EmbeddedPostgres(root, settings=EPHEMERAL_SETTINGS)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(root)


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """Run a server that the test may stop and change."""
    with run_server() as server:
        yield server


@pytest.fixture(scope="module")
def shared_server() -> Iterator[EmbeddedPostgres]:
    """Run a server that no test of this file stops."""
    with run_server() as server:
        yield server


async def query_server(server: EmbeddedPostgres, sql: str, dsn: str | None = None) -> object:
    connection = await asyncpg.connect(dsn or server.dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_accented_capitals_are_folded_for_portuguese(shared_server: EmbeddedPostgres) -> None:
    assert (
        await query_server(shared_server, "select to_tsvector('portuguese', 'AÇÃO ÁRVORES')::text")
        == "'açã':1 'árvor':2"
    )


async def test_logical_decoding_is_enabled(shared_server: EmbeddedPostgres) -> None:
    assert await query_server(shared_server, "show wal_level") == "logical"


async def test_second_start_reuses_running_server(shared_server: EmbeddedPostgres) -> None:
    other = EmbeddedPostgres(shared_server.root)
    other.start()
    assert other.dsn == shared_server.dsn


async def test_data_and_port_survive_a_restart(server: EmbeddedPostgres) -> None:
    before = server.dsn
    await query_server(server, "create table kept as select 7 as x")
    server.stop()
    assert not server.is_running
    with pytest.raises(DatabaseUnavailable):
        _ = server.dsn
    server.start()
    assert (server.dsn, await query_server(server, "select x from kept")) == (before, 7)


async def test_server_restarts_after_sigkill(server: EmbeddedPostgres) -> None:
    await query_server(server, "create table kept as select 7 as x")
    os.kill(int((server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    server.start()
    assert await query_server(server, "select x from kept") == 7


def test_data_of_another_major_version_is_not_touched(server: EmbeddedPostgres) -> None:
    server.stop()
    (server.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(ConfigurationError, match="Postgres 12"):
        server.start()


@requires_root
async def test_root_stores_data_elsewhere_when_folder_is_private(folder: Path) -> None:
    closed = folder / "home"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(
        closed / "data", settings=EPHEMERAL_SETTINGS, state_dir=folder / "state"
    )
    server.start()
    try:
        assert await query_server(server, "select 1") == 1
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        assert (closed / "data" / LOCATION_FILE).read_text().startswith(str(folder / "state"))
    finally:
        server.stop()


@requires_root
async def test_unreachable_binaries_are_copied(folder: Path) -> None:
    closed = folder / "venv"
    closed.mkdir(mode=0o700)
    hidden = copy_binaries(find_wheel_binaries(), closed)
    account = find_server_account()
    assert account is not None
    assert not can_enter(hidden, account)
    server = EmbeddedPostgres(folder / "postgres", settings=EPHEMERAL_SETTINGS, binaries=hidden)
    server.start()
    try:
        assert await query_server(server, "select 1") == 1
    finally:
        server.stop()


def check_runs_as(account: Account, home: Path) -> None:
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    server = EmbeddedPostgres(home / "data", settings=EPHEMERAL_SETTINGS)
    server.start()
    assert asyncio.run(query_server(server, "select current_user")) == "anabranch"
    server.stop()


@requires_root
def test_unprivileged_user_runs_server_as_itself(folder: Path) -> None:
    account = find_server_account("nobody")
    assert account is not None
    home = folder / "mine"
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    child = multiprocessing.get_context("fork").Process(target=check_runs_as, args=(account, home))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert (home / "data" / "data" / "PG_VERSION").stat().st_uid == account.pw_uid


@pytest.mark.parametrize(("gib", "buffers"), [(2, "256MB"), (8, "512MB"), (64, "1024MB")])
def test_shared_buffers_are_one_sixteenth_of_memory_within_bounds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gib: int, buffers: str
) -> None:
    monkeypatch.setattr(
        os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gib << 18}.__getitem__
    )
    assert EmbeddedPostgres(folder).settings["shared_buffers"] == buffers
    assert (
        EmbeddedPostgres(folder, settings={"shared_buffers": "128MB"}).settings["shared_buffers"]
        == "128MB"
    )


def test_container_memory_is_its_cgroup_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16 << 18}.__getitem__
    )
    limit = folder / "memory.max"
    assert detect_memory_bytes([limit]) == 16 << 30, "there is none"
    for file_content, expected_bytes in (
        ("max\n", 16 << 30),
        (f"{1 << 30}\n", 1 << 30),
        ("9223372036854771712\n", 16 << 30),
    ):
        limit.write_text(file_content)
        assert detect_memory_bytes([limit]) == expected_bytes


def get_socket_folder(server: EmbeddedPostgres) -> Path:
    return Path(parse_qs(urlsplit(server.dsn).query)["host"][0])


def run_as_account(account: str, work: Callable[[], Awaitable[Any]]) -> str:
    """Return class and text of the error of `work` under another account, empty on success."""
    found, mine = multiprocessing.Pipe()

    def run() -> None:
        other = find_server_account(account)
        assert other is not None and other.pw_name == account
        os.setgroups([])
        os.setgid(other.pw_gid)
        os.setuid(other.pw_uid)
        try:
            run_in_thread(work)
        except Exception as error:
            mine.send(f"{type(error).__name__}: {error}")
        else:
            mine.send("")

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(60)
    assert found.poll(), "the other account's process ended without an answer"
    return str(found.recv())


async def test_tcp_is_off_by_default(shared_server: EmbeddedPostgres) -> None:
    assert await query_server(shared_server, "show listen_addresses") == ""
    port = int(parse_qs(urlsplit(shared_server.dsn).query)["port"][0])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0 or port == 5432, (
            "another Postgres of this machine may listen on 5432"
        )
    assert shared_server.tcp_dsn is None


@requires_root
def test_other_account_cannot_connect_through_socket(shared_server: EmbeddedPostgres) -> None:
    assert stat.S_IMODE(get_socket_folder(shared_server).stat().st_mode) == 0o700
    assert "PermissionError" in run_as_account("nobody", lambda: asyncpg.connect(shared_server.dsn))


@requires_root
def test_other_account_is_rejected_even_when_folder_is_open(server: EmbeddedPostgres) -> None:
    for path in (server.root, folder := get_socket_folder(server)):
        path.chmod(0o755)
    (folder / ".s.PGSQL.5432").chmod(0o777)
    for dsn in (server.dsn, server.superuser_dsn):
        assert "Peer authentication failed" in run_as_account(
            "nobody", lambda dsn=dsn: asyncpg.connect(dsn)
        )  # type: ignore[misc]


@pytest.mark.parametrize(
    "attack",
    [
        "copy (select 1) to program 'id'",
        "copy pg_class from '/etc/passwd'",
        "select pg_read_file('/etc/passwd')",
        "select lo_import('/etc/passwd')",
        "create extension file_fdw",
        "alter role anabranch superuser",
        "grant pg_execute_server_program to anabranch",
        "set role postgres",
        "alter system set archive_command = 'id'",
    ],
)
async def test_application_role_cannot_access_files_or_programs(
    postgres_server: EmbeddedPostgres, attack: str
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await query_server(postgres_server, attack)


async def test_application_role_can_migrate_vacuum_and_create_roles(
    shared_server: EmbeddedPostgres,
) -> None:
    assert await migrate(shared_server.dsn)
    assert (
        await query_server(
            shared_server, "select rolsuper from pg_roles where rolname = current_user"
        )
        is False
    )
    for work in (
        "vacuum full keystore.keys",
        "create role app_reader",
        "checkpoint",
        "select pg_switch_wal()",
    ):
        await query_server(shared_server, work)


def test_libpq_client_connects_with_dsn(postgres_server: EmbeddedPostgres) -> None:
    command = [
        find_wheel_binaries() / "psql",
        "-XAt",
        "-c",
        "select current_user || ' ' || current_database()",
        postgres_server.dsn,
    ]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        == "anabranch anabranch"
    )


@pytest.mark.parametrize("name", ["deep/" * 30, "with a space, and 'quotes'"])
async def test_socket_moves_when_folder_path_is_unsuitable(folder: Path, name: str) -> None:
    deep = create_data_root(folder / name / "data")
    state = folder / "state"
    server = EmbeddedPostgres(deep, settings=EPHEMERAL_SETTINGS, state_dir=state)
    server.start()
    try:
        assert await query_server(server, "select 1") == 1
        assert not get_socket_folder(server).is_relative_to(deep)
        found = get_socket_folder(server)
        assert stat.S_IMODE(found.stat().st_mode) == 0o700
    finally:
        server.stop()
    assert not found.exists()


async def test_tcp_requires_the_password(folder: Path) -> None:
    root = create_data_root(folder / "postgres")
    server = EmbeddedPostgres(root, settings=EPHEMERAL_SETTINGS, tcp=0)
    server.start()
    try:
        assert stat.S_IMODE(server.password_file.stat().st_mode) == 0o600
        assert (
            await query_server(server, "select current_user", tcp_dsn(server, server.dsn))
            == "anabranch"
        )
        for dsn in (
            f"{server.tcp_dsn}?passfile={folder}/none",
            str(server.tcp_dsn).replace("anabranch@", "anabranch:guess@"),
        ):
            with pytest.raises(asyncpg.InvalidPasswordError):
                await query_server(server, "select 1", dsn)
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await query_server(
                server, "select 1", str(server.tcp_dsn).replace("anabranch@", "postgres@")
            )
    finally:
        server.stop()
    again = EmbeddedPostgres(root, settings=EPHEMERAL_SETTINGS)
    again.start()
    try:
        assert again.tcp_dsn is None
    finally:
        again.stop()


async def test_data_folder_of_older_version_is_secured_at_start(folder: Path) -> None:
    """Its server, left running by a killed process, trusts every account on a TCP port; its tables
    are the superuser's.
    """
    server = EmbeddedPostgres(folder / "postgres", settings=EPHEMERAL_SETTINGS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = (
        f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    )
    older = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    server._run(
        "initdb",
        "-D",
        str(server.data),
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
    )
    server._run(
        "pg_ctl",
        "-D",
        str(server.data),
        "-l",
        str(server.root / "postgres.log"),
        "-w",
        "-o",
        options,
        "start",
    )
    await migrate(older)
    await query_server(
        server,
        "insert into keystore.keys (id, tenant) values (gen_random_uuid(), 'default')",
        older,
    )

    server.start()
    try:
        with pytest.raises(OSError):
            await query_server(server, "select 1", older)
        assert "trust" not in (server.data / "pg_hba.conf").read_text()
        assert await query_server(server, "select count(*) from keystore.keys") == 1
        assert await list_pending_migrations(server.dsn) == []
        owned = (
            "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where nspname in ('anabranch', 'keystore') and relowner <> current_role::regrole"
        )
        assert await query_server(server, owned) == 0
        await query_server(server, "alter table anabranch.documents add column another int")
    finally:
        server.stop()


@requires_root
def test_tables_of_deleted_data_folder_are_reported(folder: Path) -> None:
    closed = folder / "home"
    closed.mkdir(mode=0o700)
    EmbeddedPostgres(
        closed / "data" / "postgres", settings=EPHEMERAL_SETTINGS, state_dir=folder / "state"
    )
    shutil.rmtree(closed / "data")
    with pytest.raises(ConfigurationError, match="deleted data folder") as refused:
        EmbeddedPostgres(
            closed / "data" / "postgres", settings=EPHEMERAL_SETTINGS, state_dir=folder / "state"
        )
    assert refused.value.code == "TABLES_LEFT_BEHIND" and "down --erase" in refused.value.remedy
