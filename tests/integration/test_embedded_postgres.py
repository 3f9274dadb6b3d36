from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from schemas.errors import ConfigurationError, DatabaseUnavailable
from sql.binaries import copied_binaries, wheel_binaries
from sql.embedded import LOCATION, THROWAWAY, EmbeddedPostgres, memory_bytes
from sql.server_account import Account, can_enter, server_account
from tests.postgres_fixture import fresh_root

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run Postgres as another account")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any account may enter."""
    path = Path(tempfile.mkdtemp(prefix="anabranch-embedded-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    root = fresh_root()
    server = EmbeddedPostgres(root, settings=THROWAWAY)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(root)


async def ask(server: EmbeddedPostgres, sql: str) -> object:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_accented_capitals_are_folded_so_that_portuguese_is_searchable(server: EmbeddedPostgres) -> None:
    assert await ask(server, "select to_tsvector('portuguese', 'AÇÃO ÁRVORES')::text") == "'açã':1 'árvor':2"


async def test_logical_decoding_is_on(server: EmbeddedPostgres) -> None:
    assert await ask(server, "show wal_level") == "logical"


async def test_a_second_start_finds_the_running_server(server: EmbeddedPostgres) -> None:
    other = EmbeddedPostgres(server.root)
    other.start()
    assert other.dsn == server.dsn


async def test_data_and_port_survive_a_restart(server: EmbeddedPostgres) -> None:
    before = server.dsn
    await ask(server, "create table kept as select 7 as x")
    server.stop()
    assert not server.running
    with pytest.raises(DatabaseUnavailable):
        _ = server.dsn
    server.start()
    assert (server.dsn, await ask(server, "select x from kept")) == (before, 7)


async def test_it_starts_again_after_kill_9(server: EmbeddedPostgres) -> None:
    await ask(server, "create table kept as select 7 as x")
    os.kill(int((server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    server.start()
    assert await ask(server, "select x from kept") == 7


def test_data_of_another_major_version_are_left_alone(server: EmbeddedPostgres) -> None:
    server.stop()
    (server.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(ConfigurationError, match="Postgres 12"):
        server.start()


@as_root
async def test_under_a_closed_folder_root_keeps_the_data_elsewhere_and_changes_no_mode(folder: Path) -> None:
    closed = folder / "home"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "data", settings=THROWAWAY, state_dir=folder / "state")
    server.start()
    try:
        assert await ask(server, "select 1") == 1
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        assert (closed / "data" / LOCATION).read_text().startswith(str(folder / "state"))
    finally:
        server.stop()


@as_root
async def test_binaries_that_the_account_cannot_reach_are_copied(folder: Path) -> None:
    closed = folder / "venv"
    closed.mkdir(mode=0o700)
    hidden = copied_binaries(wheel_binaries(), closed)
    account = server_account()
    assert account is not None
    assert not can_enter(hidden, account)
    server = EmbeddedPostgres(folder / "postgres", settings=THROWAWAY, binaries=hidden)
    server.start()
    try:
        assert await ask(server, "select 1") == 1
    finally:
        server.stop()


def run_as(account: Account, home: Path) -> None:
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    server = EmbeddedPostgres(home / "data", settings=THROWAWAY)
    server.start()
    assert server.dsn.startswith("postgresql://postgres@127.0.0.1:")
    server.stop()


@as_root
def test_a_plain_user_runs_it_as_itself(folder: Path) -> None:
    account = server_account("nobody")
    assert account is not None
    home = folder / "mine"
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    child = multiprocessing.get_context("fork").Process(target=run_as, args=(account, home))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert (home / "data" / "data" / "PG_VERSION").stat().st_uid == account.pw_uid


@pytest.mark.parametrize(("gib", "buffers"), [(2, "256MB"), (8, "512MB"), (64, "1024MB")])
def test_shared_buffers_are_a_sixteenth_of_the_memory_within_bounds(folder: Path, monkeypatch: pytest.MonkeyPatch, gib: int, buffers: str) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gib << 18}.__getitem__)
    assert EmbeddedPostgres(folder).settings["shared_buffers"] == buffers
    assert EmbeddedPostgres(folder, settings={"shared_buffers": "128MB"}).settings["shared_buffers"] == "128MB"


def test_the_memory_of_a_container_is_its_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16 << 18}.__getitem__)
    limit = folder / "memory.max"
    assert memory_bytes([limit]) == 16 << 30, "there is none"
    for told, found in (("max\n", 16 << 30), (f"{1 << 30}\n", 1 << 30), ("9223372036854771712\n", 16 << 30)):
        limit.write_text(told)
        assert memory_bytes([limit]) == found
